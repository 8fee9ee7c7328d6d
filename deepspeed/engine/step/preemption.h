// At a preemption, a signal asks the process to end soon: it is turned into a flag, and all ranks learn,
// after the same update, that one of them was asked to end.
#pragma once

#include <cstdint>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/engine/step/training_options.h"

namespace deepspeed {

class PreemptionWatch {
 public:
  /// Catches the signal. Throws UsageError for a signal that cannot be caught or check_every below 1.
  explicit PreemptionWatch(const PreemptionOptions& options);

  /// Ends an update, on all ranks of `group`: takes the result of the comparison that an earlier update
  /// began, and begins another one.
  void end_step(const comm::ProcessGroup& group);
  /// Says, alike on all ranks, whether the signal had reached one of them when the last comparison began.
  bool requested() const { return requested_; }

 private:
  int64_t check_every_;
  int64_t steps_ = 0;
  at::Tensor votes_;       // (1) fp64: how many ranks have got the signal
  comm::Work comparison_;  // under way, over votes_
  bool requested_ = false;
};

}  // namespace deepspeed
