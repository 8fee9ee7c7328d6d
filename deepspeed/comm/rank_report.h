// What a rank tells the others about its collectives, and what can be seen from two such reports. Internal to
// this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::comm {

/// The latest collectives of one group.
struct GroupReport {
  std::string name;
  std::vector<int> global_ranks;          // members
  std::map<uint64_t, std::string> calls;  // by number, described
  std::optional<uint64_t> waits_in;       // the oldest call that is not done although it began a while ago
  bool is_blocked = false;                // and the program does nothing else meanwhile
  bool left = false;                      // the rank gave up the group

  /// 0 before the first.
  uint64_t last_call() const { return calls.empty() ? 0 : calls.rbegin()->first; }
};

struct RankReport {
  int rank = 0;                               // global
  int64_t serial = 0;                         // counts this rank's reports
  std::map<std::string, GroupReport> groups;  // by a key that is the same on all ranks
  std::string gave_up;                        // why this rank failed its groups; "": it did not

  bool has_left() const { return !groups.empty() && groups.begin()->second.left; }
};

Json to_json(const RankReport& report);
/// Throws nlohmann's exception for what to_json() did not make.
RankReport report_from_json(const Json& json);

/// How the ranks' calls in a common group differ: other collectives, or one that `other` left without
/// calling. Nothing where they agree so far.
std::optional<std::string> find_divergence(const RankReport& own, const RankReport& other);

/// Whether both ranks are blocked, each in a collective of a group that both are in and that the other has
/// not called. Certain only where a later report of `other` says the same.
std::optional<std::string> find_deadlock(const RankReport& own, const RankReport& other);

}  // namespace deepspeed::comm
