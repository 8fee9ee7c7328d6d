// Preemption: all ranks learn, after the same step, that one of them was asked to end.
#pragma once

#include <csignal>
#include <cstdint>

#include "deepspeed/comm/process_group.h"

namespace deepspeed {

struct PreemptionOptions {
  int signal = SIGTERM;
  /// The ranks compare notes after every so many updates: one reduction of 8 bytes each time.
  int64_t check_every = 1;
};

class PreemptionWatch {
 public:
  /// Catches the signal. Throws UsageError for a signal that cannot be caught or check_every below 1.
  explicit PreemptionWatch(const PreemptionOptions& options);

  /// After an update, on all ranks of `group`.
  void end_step(const comm::ProcessGroup& group);
  /// The same on all ranks: whether the signal had reached one of them when they last compared notes.
  bool requested() const { return requested_; }

 private:
  int64_t check_every_;
  int64_t steps_ = 0;
  bool requested_ = false;
};

}  // namespace deepspeed
