// A report is what a rank tells the others about its collectives; two of them show how ranks differ. Internal
// to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/comm/group/held_values.h"

namespace deepspeed::comm {

/// Stands in place of a thread's number (own_thread.h).
constexpr int64_t kSeveralThreads = -1;

/// Lists the latest collectives of one group.
struct GroupReport {
  std::string name;
  std::vector<int> global_ranks;          // members
  std::map<uint64_t, std::string> calls;  // by number, described
  std::map<uint64_t, uint64_t> held;      // by number: the hash of what the caller held, where it was told
  std::map<uint64_t, NamedTexts> values;  // by that hash: what it stands for, of the last calls
  std::optional<uint64_t> waits_in;       // the oldest call that is not done although it began a while ago
  bool is_blocked = false;                // and its thread does nothing else meanwhile
  int64_t thread = 0;                     // that made the latest calls; 0: there are none
  bool left = false;                      // the rank calls nothing in the group any more

  /// Returns the number of the last call, 0 before the first.
  uint64_t last_call() const { return calls.empty() ? 0 : calls.rbegin()->first; }
};

struct RankReport {
  int rank = 0;                                // global
  int64_t serial = 0;                          // counts this rank's reports
  std::map<std::string, GroupReport> groups;   // by a key that is the same on all ranks
  std::map<std::string, std::string> gave_up;  // the groups that this rank failed, by key, and why
};

/// Says what ended a group.
struct Verdict {
  std::string group;  // its key
  std::string text;
};

Json to_json(const RankReport& report);
/// Reads a report. Throws nlohmann's exception for what to_json() did not make.
RankReport report_from_json(const Json& json);

/// Returns the thread that makes this rank's calls in the group: where there are none, the only one that
/// calls anything; kSeveralThreads where that is not one.
int64_t thread_of(const RankReport& report, const std::string& group);

/// Finds how the ranks' calls in their common groups differ: other collectives, callers that hold other
/// values, or a collective that `other` left without calling. At most one verdict a group; none where they
/// agree so far.
std::vector<Verdict> find_divergences(const RankReport& own, const RankReport& other);

/// Finds where a thread of each rank is blocked in a collective of a group that both are in and that the
/// other rank has not called, although the very thread that is to call it is the other's blocked one. The
/// verdicts are those of own groups. Certain only where a later report of `other` says the same.
std::vector<Verdict> find_deadlocks(const RankReport& own, const RankReport& other);

/// Finds own groups that wait and that `other` gave up, or will not come to, because the thread that calls
/// there gave up another one. with_idle: also own groups in which nothing waits any more.
std::vector<Verdict> find_given_up(const RankReport& own, const RankReport& other, bool with_idle = false);

}  // namespace deepspeed::comm
