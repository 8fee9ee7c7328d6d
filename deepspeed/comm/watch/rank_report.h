// Holds what a rank tells the others about its collectives. Two reports show how ranks differ. Internal to
// this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/comm/group/held_values.h"

namespace deepspeed::comm {

/// Stands for a thread's number (own_thread.h) if several threads make calls.
constexpr int64_t kSeveralThreads = -1;

/// Lists the latest collectives of one group.
struct GroupReport {
  std::string name;
  std::vector<int> global_ranks;          // members
  std::map<uint64_t, std::string> calls;  // descriptions, by number
  std::map<uint64_t, uint64_t> held;      // by number: hash of the caller's values, if any
  std::map<uint64_t, NamedTexts> values;  // by that hash: the values, for the last calls
  std::optional<uint64_t> waits_in;       // number of the oldest call unfinished for a while
  bool is_blocked = false;                // its thread is waiting for it
  int64_t thread = 0;                     // that made the latest calls; 0: none
  bool left = false;                      // the rank makes no more calls in the group

  /// Returns the number of the last call, or 0.
  uint64_t last_call() const { return calls.empty() ? 0 : calls.rbegin()->first; }
};

struct RankReport {
  int rank = 0;                                // global
  int64_t serial = 0;                          // counts this rank's reports
  std::map<std::string, GroupReport> groups;   // by a key that is the same on all ranks
  std::map<std::string, std::string> gave_up;  // groups that this rank failed, by key, with the reason
};

/// Tells why a group ended.
struct Verdict {
  std::string group;  // its key
  std::string text;
};

Json to_json(const RankReport& report);
/// Parses a report. Throws nlohmann's exception for anything that to_json() did not write.
RankReport report_from_json(const Json& json);

/// Returns the thread that makes this rank's calls in the group. If there are none yet, returns the only
/// thread that calls in other groups, or kSeveralThreads if there is no single one.
int64_t thread_of(const RankReport& report, const std::string& group);

/// Finds differences between the ranks' calls in their common groups. Collectives may differ, callers may
/// hold different values, or `other` may have left before a collective. Returns at most one verdict per
/// group; none while they agree.
std::vector<Verdict> find_divergences(const RankReport& own, const RankReport& other);

/// Finds deadlocks between a thread of each rank. Each is blocked in a collective that the other rank's
/// blocked thread should call. Both ranks are in both groups. The verdicts are for this rank's groups. They
/// are certain only if a later report of `other` says the same.
std::vector<Verdict> find_deadlocks(const RankReport& own, const RankReport& other);

/// Finds groups of this rank in which `other` will make no more calls. Either `other` gave up the group, or
/// this rank waits there for a thread of `other` that gave up another group. `with_idle` includes groups of
/// such a thread in which this rank does not wait.
std::vector<Verdict> find_given_up(const RankReport& own, const RankReport& other, bool with_idle = false);

}  // namespace deepspeed::comm
