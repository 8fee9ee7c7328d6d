#include "deepspeed/zero/access/live_set.h"

#include <deque>
#include <string>

#include <gtest/gtest.h>

namespace deepspeed::zero {
namespace {

struct LiveItem {
  std::string name;
  LiveSet<LiveItem>::Place place = {};
};

/// Holds a set of named items, and returns their names in the order of visits.
struct NamedSet {
  explicit NamedSet(int64_t max_numel) : set(max_numel) {}

  LiveItem& add(const std::string& name, int64_t numel, bool persistent = false) {
    LiveItem& item = items.emplace_back(LiveItem{name});
    item.place = set.add(item, numel, persistent);
    return item;
  }
  std::string order() {
    std::string names;
    set.for_each([&](LiveItem& item) { names += item.name; });
    return names;
  }
  /// Makes room, but keeps items that `in_use` names. Returns the evicted ones.
  std::string evict_for(int64_t numel, const std::string& in_use = "") {
    std::string evicted;
    set.make_room(numel, [&](LiveItem& item) {
      if (in_use.find(item.name) != std::string::npos) return;
      evicted += item.name;
      set.remove(item.place);
    });
    return evicted;
  }

  LiveSet<LiveItem> set;
  std::deque<LiveItem> items;
};

TEST(LiveSet, OrdersByTheLatestUse) {
  NamedSet named(100);
  EXPECT_EQ(named.set.latest(), nullptr);
  LiveItem& a = named.add("a", 1);
  named.add("b", 1);
  named.add("c", 1);
  named.set.note_used(a.place);
  EXPECT_EQ(named.order(), "bca");
  EXPECT_EQ(named.set.latest(), &a);
  EXPECT_EQ(named.set.oldest()->name, "b");
}

TEST(LiveSet, EvictsTheOldestUntilThereIsRoom) {
  NamedSet named(10);
  LiveItem& a = named.add("a", 4);
  named.add("b", 3);
  named.add("c", 3);
  named.set.note_used(a.place);
  EXPECT_EQ(named.evict_for(0), "");
  EXPECT_EQ(named.evict_for(4), "bc");
  EXPECT_EQ(named.set.numel(), 4);
  EXPECT_EQ(named.set.room(), 6);
  EXPECT_EQ(named.order(), "a");
}

TEST(LiveSet, LeavesWhatIsInUseAndWhatIsPersistent) {
  NamedSet named(10);
  named.add("p", 4, /*persistent=*/true);
  named.add("u", 3);
  named.add("x", 3);
  EXPECT_EQ(named.evict_for(10, "u"), "x");
  EXPECT_EQ(named.order(), "pu");
  EXPECT_EQ(named.set.numel(), 7);
}

TEST(LiveSet, SaysByHowMuchTheLimitIsExceeded) {
  NamedSet named(5);
  named.add("p", 8, /*persistent=*/true);
  EXPECT_EQ(named.set.room(), -3);
}

TEST(LiveSet, GivesBackTheElementsThatItCounted) {
  NamedSet named(5);
  LiveItem& uncounted = named.add("a", 0);
  LiveItem& counted = named.add("b", 5);
  named.set.remove(uncounted.place);
  EXPECT_EQ(named.set.numel(), 5);
  named.set.remove(counted.place);
  EXPECT_EQ(named.set.numel(), 0);
  EXPECT_TRUE(named.set.empty());
}

TEST(LiveSet, LetsAVisitRemoveTheItemItSees) {
  NamedSet named(5);
  named.add("a", 1);
  named.add("b", 1);
  named.add("c", 1);
  named.set.for_each([&](LiveItem& item) {
    if (item.name != "b") named.set.remove(item.place);
  });
  EXPECT_EQ(named.order(), "b");
}

}  // namespace
}  // namespace deepspeed::zero
