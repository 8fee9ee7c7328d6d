// Shows ranks on other machines, over the store, that this rank's process runs. Internal to this folder.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/still_ranks.h"

namespace deepspeed::comm {

/// Exchanges heartbeats. One thread must call beat() and look() several times a second, even while the
/// program computes. Throws what the store throws.
class Heartbeats {
 public:
  /// Returns whether beat() or look() has something to do.
  bool is_due() const { return Clock::now() >= std::min(next_beat_, next_look_); }

  /// Answers requests for heartbeats. Looks for a new request every two seconds, in one to three messages to
  /// the store.
  void beat(c10d::Store& store, int rank);

  /// Requests heartbeats of `unseen` ranks in an `awaited` call, once a second, in three messages. The
  /// processes of `unseen` ranks cannot be inspected from here. A rank without a new heartbeat in several
  /// checks is logged, but only once as long as any call is awaited. Checks are counted instead of seconds,
  /// because a silent store or a job that was stopped as a whole says nothing about a single rank.
  void look(c10d::Store& store, int rank, const std::vector<AwaitedCall>& awaited,
            const std::set<int>& unseen);

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    std::string last;
    int num_looks = 0;  // checks with this value
    bool is_told = false;
  };

  std::string answered_;  // the last request
  int64_t num_asked_ = 0;
  Clock::time_point next_beat_, next_look_;
  std::map<int, Beat> beats_;
};

}  // namespace deepspeed::comm
