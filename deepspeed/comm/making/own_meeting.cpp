#include "deepspeed/comm/making/own_meeting.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/group/store_polling.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Interval between checks whether a missing rank can still come.
constexpr milliseconds kLooking(250);
// How long another rank may do something else before that is logged.
constexpr milliseconds kMeetingPatience(10000);

std::string all_came_key(const std::string& key) { return "all/" + key; }
std::string came_key(const std::string& key, int rank) { return "came/" + key + "/" + std::to_string(rank); }
std::string makes_key(int rank) { return "makes/" + std::to_string(rank); }

// Returns the key of the group that the rank is making and waits for, if any.
std::optional<std::string> awaited_group_of(int rank, c10d::Store& store) {
  auto key = read_if_set(store, makes_key(rank));
  if (key && store.check({all_came_key(*key)})) key.reset();
  return key;
}

std::string describe_missing(const GroupDescription& group, const std::string& key, c10d::Store& store,
                             bool with_idle) {
  std::string text;
  for (const int rank : group.global_ranks) {
    if (store.check({came_key(key, rank)})) continue;
    const auto other = awaited_group_of(rank, store);
    if (!other && !with_idle) continue;
    text += message(text.empty() ? "" : ", ", "rank ", rank,
                    other ? message(" makes '", *other, "' instead") : std::string(" makes none"));
  }
  return text;
}

void warn_of_others(const GroupDescription& group, const std::string& key, c10d::Store& store,
                    AbsentRanks& absent) {
  if (const auto stopped = absent.describe_stopped(); !stopped.empty())
    log::warning("[comm] rank ", group.global_ranks.at(group.rank), " makes the group '", key, "', but ",
                 stopped, " and does not come; it goes on once it runs again");
  const auto missing = describe_missing(group, key, store, /*with_idle=*/false);
  if (missing.empty()) return;
  log::warning("[comm] rank ", group.global_ranks.at(group.rank), " makes the group '", key, "', but ",
               missing,
               "; expected the same names on all ranks (for engines InitializeOptions::engine_name)");
}

}  // namespace

void meet_to_connect(const GroupDescription& group, const std::string& key, c10d::Store& store,
                     AbsentRanks absent) {
  const int rank = group.global_ranks.at(group.rank);
  store.set(makes_key(rank), key);
  store.set(came_key(key, rank), std::string("1"));
  const int64_t num_came = store.add("count/" + key, 1);
  if (num_came == group.size()) store.set(all_came_key(key), std::string("1"));
  const auto begin = Clock::now(), end = begin + group.timeout;
  bool is_patient = true;
  while (!appears(store, all_came_key(key), std::min(Clock::now() + kLooking, end))) {
    if (const auto why = absent.find(); why && !store.check({all_came_key(key)})) {
      const std::string missing = describe_missing(group, key, store, /*with_idle=*/true);
      if (rank == 0) std::this_thread::sleep_for(2 * kLooking);  // the others check before the store ends
      raise<CommError>(*why, " before all ranks made the group '", key, "': ", missing);
    }
    if (is_patient && Clock::now() - begin >= kMeetingPatience) {
      is_patient = false;
      warn_of_others(group, key, store, absent);
    }
    if (Clock::now() < end) continue;
    raise<CommError>("the group '", key, "' was not made by all of its ", group.size(), " ranks within ",
                     static_cast<double>(group.timeout.count()) / 1000.0,
                     " s: ", describe_missing(group, key, store, /*with_idle=*/true),
                     "; expected the same names on all ranks (for engines InitializeOptions::engine_name)");
  }
}

}  // namespace deepspeed::comm
