// Ranks whose processes cannot be seen from each other, those of several machines, show over the store that
// they run. Internal to this folder.
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

/// One thread calls it, a few times a second, which does nothing long besides; it runs however long the
/// program computes. What a call throws, the store has thrown.
class Heartbeats {
 public:
  /// Says whether one of the others has something to do.
  bool is_due() const { return Clock::now() >= std::min(next_beat_, next_look_); }

  /// Looks every two seconds whether a rank asks for beats, in a message or two, and sets this rank's then.
  void beat(c10d::Store& store, int rank);

  /// Asks for the beats of those that are awaited and cannot be seen, once a second, in three messages, and
  /// names in the log one whose beat has stayed in several looks: once, until nothing is awaited. Looks are
  /// counted, not seconds: a store that was silent, and a job that was stopped as a whole, show nothing of a
  /// single rank.
  void look(c10d::Store& store, int rank, const std::vector<AwaitedCall>& awaited,
            const std::set<int>& unseen);

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    std::string last;
    int num_looks = 0;  // that found it so
    bool is_told = false;
  };

  std::string answered_;  // what was asked last
  int64_t num_asked_ = 0;
  Clock::time_point next_beat_, next_look_;
  std::map<int, Beat> beats_;
};

}  // namespace deepspeed::comm
