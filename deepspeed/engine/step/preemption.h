// On preemption a signal asks the process to end soon. It is turned into a flag, and all ranks learn after
// the same update that one of them received it.
#pragma once

#include <cstdint>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/engine/step/training_options.h"

namespace deepspeed {

class PreemptionWatch {
 public:
  /// Catches the signal. Throws UsageError if it cannot be caught, or if check_every is below 1.
  explicit PreemptionWatch(const PreemptionOptions& options);

  /// Learns, after an update, whether a rank of `group` received the signal. All ranks call it. It reads the
  /// reduction that an earlier call started, and starts the next one.
  void end_step(const comm::ProcessGroup& group);
  /// Returns whether any rank had received the signal when the last finished reduction started. All ranks
  /// return the same.
  bool requested() const { return requested_; }

 private:
  int64_t check_every_;
  int64_t steps_ = 0;
  at::Tensor votes_;       // (1) fp64: number of ranks that have received the signal
  comm::Work comparison_;  // in progress, over votes_
  bool requested_ = false;
};

}  // namespace deepspeed
