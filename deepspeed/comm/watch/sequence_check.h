// Finds ranks whose collectives differ although all of them finish, which is possible over NCCL. Ranks
// exchange the number and the hash of their calls; equal numbers must have equal hashes. Internal to this
// folder.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/watch/call_history.h"
#include "deepspeed/comm/watch/rank_report.h"

namespace deepspeed::comm {

/// Compares this rank's calls with its neighbours'. For one thread only.
class SequenceCheck {
 public:
  struct Group {
    std::shared_ptr<CallHistory> history;
    std::vector<int> global_ranks;
  };

  /// `all_calls` returns this rank's report with all calls it remembers.
  SequenceCheck(int rank, std::function<RankReport()> all_calls)
      : rank_(rank), all_calls_(std::move(all_calls)) {}

  /// Publishes this rank's progress twice a second and compares it with its neighbours'. More frequent calls
  /// do nothing. The neighbours are the previous and next ranks in the group; if any ranks differ, two
  /// neighbours do. Groups have the same keys on all ranks. If hashes differ, the two ranks publish all calls
  /// they remember. A later call then returns the verdict on all ranks of the group, which names the first
  /// two differing calls. Never waits for another rank. `groups` are the groups without a verdict so far.
  std::optional<Verdict> check(c10d::Store& store, const std::map<std::string, Group>& groups);

 private:
  using Clock = std::chrono::steady_clock;
  struct Difference {
    std::string group;    // the key
    int peer = 0;         // global rank
    uint64_t number = 0;  // the calls differ at this one or before
  };

  std::optional<Difference> compare(c10d::Store& store, const std::map<std::string, Group>& groups);
  void tell_calls(c10d::Store& store);
  void answer_requests(c10d::Store& store);
  std::optional<Verdict> name_difference(c10d::Store& store);
  /// Names the first differing calls of this rank and the peer. Returns nothing unless the peer has published
  /// its calls up to there.
  std::optional<std::string> named_difference(c10d::Store& store, const RankReport& own) const;
  std::string unnamed_difference(const RankReport& own) const;

  int rank_;
  std::function<RankReport()> all_calls_;
  Clock::time_point next_;
  std::string told_;
  int64_t num_answered_ = 0;              // requests for all calls
  std::optional<Difference> difference_;  // found, but the calls are not named yet
  Clock::time_point naming_ends_;
};

}  // namespace deepspeed::comm
