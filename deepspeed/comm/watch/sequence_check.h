// This check finds ranks whose collectives differ although all of them end, as they may over NCCL: ranks tell
// each other how many calls they made and the hash of all of them, so that equal counts must have equal
// hashes. Internal to this folder.
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

/// Compares this rank's calls with its neighbours'. One thread calls it.
class SequenceCheck {
 public:
  struct Group {
    std::shared_ptr<CallHistory> history;
    std::vector<int> global_ranks;
  };

  /// Takes this rank and all_calls: the report of this rank with all calls that it remembers.
  SequenceCheck(int rank, std::function<RankReport()> all_calls)
      : rank_(rank), all_calls_(std::move(all_calls)) {}

  /// Tells, twice a second (more calls do nothing), where this rank is in each group, by a key that is the
  /// same on all ranks, and compares with the ranks before and after it in the group; a rank that differs
  /// from any differs from a neighbour. Where hashes differ, the two ranks tell all calls that they remember,
  /// and a later call returns the verdict that names the first two that differ, to all ranks of the group.
  /// Never waits for another rank. groups: those without a verdict so far.
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
  /// Names the calls, where the peer has told its own up to there.
  std::optional<std::string> named_difference(c10d::Store& store, const RankReport& own) const;
  std::string unnamed_difference(const RankReport& own) const;

  int rank_;
  std::function<RankReport()> all_calls_;
  Clock::time_point next_;
  std::string told_;
  int64_t num_answered_ = 0;              // requests for all calls
  std::optional<Difference> difference_;  // found; the calls are to be named
  Clock::time_point naming_ends_;
};

}  // namespace deepspeed::comm
