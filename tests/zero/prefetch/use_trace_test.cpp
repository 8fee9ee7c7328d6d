#include "deepspeed/zero/prefetch/use_trace.h"

#include <algorithm>
#include <random>
#include <unordered_set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/zero/prefetch/trace_window.h"

namespace deepspeed::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Returns what a window that opens here shows of the pass. It holds at most `max_numel` elements.
std::vector<uint64_t> ahead(const UseTrace& trace, int64_t max_numel, bool holds_next = false) {
  if (!trace.is_followed()) return {};
  std::vector<uint64_t> keys;
  TraceWindow window(max_numel, holds_next);
  window.follow(
      trace, [](size_t) {}, [&](size_t place) { keys.push_back(trace.entry(place).key); });
  return keys;
}

// Key k has 10 * k elements.
void run_pass(UseTrace& trace, const std::vector<uint64_t>& keys) {
  trace.begin();
  for (const uint64_t key : keys) trace.use({key, static_cast<int64_t>(10 * key)});
  trace.end();
}

TEST(UseTrace, KnowsNothingInTheFirstPass) {
  UseTrace trace;
  trace.begin();
  trace.use({1, 10});
  EXPECT_FALSE(trace.is_followed());
  EXPECT_THAT(ahead(trace, 1000), IsEmpty());
  EXPECT_EQ(trace.distance_to(1), std::nullopt);
}

TEST(UseTrace, KnowsWhatComesNextInLaterPasses) {
  UseTrace trace;
  run_pass(trace, {1, 2, 3, 2, 1, 4});
  trace.begin();
  EXPECT_TRUE(trace.is_followed());
  EXPECT_THAT(ahead(trace, 30), ElementsAre(1, 2));
  trace.use({1, 10});
  EXPECT_THAT(ahead(trace, 1000), ElementsAre(2, 3, 1, 4));
  EXPECT_THAT(ahead(trace, 50), ElementsAre(2, 3));  // 2 again costs nothing, 1 would be too much
  EXPECT_THAT(ahead(trace, 19), IsEmpty());
  EXPECT_EQ(trace.distance_to(1), 20 + 30 + 20);
  EXPECT_EQ(trace.distance_to(2), 0);
  trace.use({2, 20});
  trace.use({3, 30});
  EXPECT_EQ(trace.distance_to(3), std::nullopt);
}

TEST(UseTrace, IsRecordedAnewFromWhereAPassLeavesIt) {
  UseTrace trace;
  run_pass(trace, {1, 2, 3, 4});
  trace.begin();
  trace.use({1, 10});
  trace.use({3, 30});
  EXPECT_FALSE(trace.is_followed());
  EXPECT_THAT(ahead(trace, 1000), IsEmpty());
  trace.use({2, 20});
  trace.end();
  trace.begin();
  EXPECT_THAT(ahead(trace, 1000), ElementsAre(1, 3, 2));
}

TEST(UseTrace, CountsUsesInARowAsOne) {
  UseTrace trace;
  run_pass(trace, {1, 1, 2, 2, 2, 1});
  EXPECT_EQ(trace.size(), 3U);
  run_pass(trace, {1, 2, 2, 1});
  EXPECT_EQ(trace.size(), 3U);
}

TEST(UseTrace, EndsWhereAPassEnds) {
  UseTrace trace;
  run_pass(trace, {1, 2, 3});
  run_pass(trace, {1});
  EXPECT_EQ(trace.size(), 1U);
  run_pass(trace, {1, 2});
  EXPECT_EQ(trace.size(), 2U);
  run_pass(trace, {});
  EXPECT_EQ(trace.size(), 0U);
}

TEST(UseTrace, HoldsWhatComesNextHoweverLargeItIs) {
  UseTrace trace;
  run_pass(trace, {5, 1, 2});
  trace.begin();
  EXPECT_THAT(ahead(trace, 20, /*holds_next=*/true), ElementsAre(5));
  EXPECT_THAT(ahead(trace, 20, /*holds_next=*/false), IsEmpty());
  EXPECT_THAT(ahead(trace, 0, /*holds_next=*/true), IsEmpty());
}

/// A trace that searches everything ahead at each query.
struct SlowTrace {
  std::vector<UseTrace::Entry> entries;
  size_t position = 0;
  bool is_followed = false;

  void begin() {
    position = 0;
    is_followed = !entries.empty();
  }
  void use(const UseTrace::Entry& entry) {
    if (position > 0 && entries[position - 1].key == entry.key) return;
    const bool is_next = position < entries.size() && entries[position].key == entry.key;
    if (is_followed && !is_next) {
      entries.resize(position);
      is_followed = false;
    }
    if (!is_followed) entries.push_back(entry);
    ++position;
  }
  void end() {
    entries.resize(position);
    is_followed = false;
  }
  std::vector<uint64_t> keys_from(size_t place, int64_t max_numel) const {
    std::vector<uint64_t> keys;
    if (max_numel == 0) return keys;
    std::unordered_set<uint64_t> seen;
    int64_t numel = 0;
    for (; place < entries.size(); ++place) {
      if (!seen.insert(entries[place].key).second) continue;
      numel += entries[place].numel;
      if (numel > max_numel) break;
      keys.push_back(entries[place].key);
    }
    return keys;
  }
  std::vector<uint64_t> ahead(int64_t max_numel, bool holds_next) const {
    if (!is_followed) return {};
    std::vector<uint64_t> keys = keys_from(position, max_numel);
    if (keys.empty() && holds_next && max_numel > 0 && position < entries.size())
      keys.push_back(entries[position].key);
    return keys;
  }
  std::optional<int64_t> distance_from(size_t place, uint64_t key) const {
    int64_t numel = 0;
    for (; place < entries.size(); ++place) {
      if (entries[place].key == key) return numel;
      numel += entries[place].numel;
    }
    return std::nullopt;
  }
  std::optional<int64_t> distance_to(uint64_t key) const {
    return is_followed ? distance_from(position, key) : std::nullopt;
  }
  int64_t rest() const {
    int64_t numel = 0;
    for (size_t place = position; place < entries.size(); ++place) numel += entries[place].numel;
    return numel;
  }
};

/// A window that follows a trace.
struct FollowedWindow {
  int64_t max_numel;
  bool holds_next;
  TraceWindow window{max_numel, holds_next};
  std::vector<size_t> places = {};  // in order

  std::vector<uint64_t> keys(const UseTrace& trace) {
    if (!trace.is_followed()) {
      window.close();
      places.clear();
      return {};
    }
    window.follow(
        trace, [&](size_t place) { std::erase(places, place); },
        [&](size_t place) { places.insert(std::ranges::upper_bound(places, place), place); });
    std::vector<uint64_t> keys;
    for (const size_t place : places) keys.push_back(trace.entry(place).key);
    return keys;
  }
};

/// Returns the next use of a random pass, which mostly follows the trace.
uint64_t random_key(const SlowTrace& trace, std::mt19937& random) {
  const bool follows = trace.is_followed && trace.position < trace.entries.size() && random() % 200 != 0;
  return follows ? trace.entries[trace.position].key : 1 + random() % 12;
}

TEST(UseTrace, SaysWhatALookThroughTheWholePassSays) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    UseTrace trace;
    SlowTrace slow;
    std::vector<FollowedWindow> windows;
    for (const int64_t max_numel : {0, 15, 70, 200, 100000}) {
      for (const bool holds_next : {false, true}) windows.push_back({max_numel, holds_next});
    }
    for (int pass = 0; pass < 6; ++pass) {
      trace.begin();
      slow.begin();
      for (auto& window : windows) window.window.close(), window.places.clear();
      for (size_t use = random() % 80; use-- > 0;) {
        const uint64_t key = random_key(slow, random);
        trace.use({key, static_cast<int64_t>(10 * key)});
        slow.use({key, static_cast<int64_t>(10 * key)});
        ASSERT_EQ(trace.is_followed(), slow.is_followed);
        ASSERT_EQ(trace.rest(), slow.rest());
        for (uint64_t any = 1; any <= 12; ++any) {
          ASSERT_EQ(trace.distance_to(any), slow.distance_to(any));
          ASSERT_EQ(trace.distance_from_begin(any), slow.distance_from(0, any));
        }
        for (auto& window : windows)
          ASSERT_EQ(window.keys(trace), slow.ahead(window.max_numel, window.holds_next));
      }
      trace.end();
      slow.end();
      for (const int64_t max_numel : {0, 15, 70, 100000})
        ASSERT_EQ(trace.beginning(max_numel), slow.keys_from(0, max_numel));
    }
  }
}

}  // namespace
}  // namespace deepspeed::zero
