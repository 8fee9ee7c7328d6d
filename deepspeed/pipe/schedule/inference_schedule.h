// The forward-only schedule, by DeepSpeed's step table.
#pragma once

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Runs the forward of each micro batch, one step later on each stage. M micro batches take M + S - 1 steps
/// on S stages. Even stages send before they receive and odd ones the other way round, so that blocking sends
/// do not wait for each other. Source: DeepSpeed 0.19.6, InferenceSchedule.
class DEEPSPEED_API InferenceSchedule : public PipeSchedule {
 public:
  using PipeSchedule::PipeSchedule;
  Steps steps() const override;
  /// Returns 2: one buffer is sent while the other one is filled.
  int num_pipe_buffers() const override { return 2; }

 private:
  std::vector<Instruction> step(int step) const;
};

}  // namespace deepspeed::pipe
