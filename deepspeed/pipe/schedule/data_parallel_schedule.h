// Accumulation of gradients without a pipeline, written as a schedule.
#pragma once

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Runs each micro batch forward and backward in one step and steps the optimizer in the last one.
/// Source: DeepSpeed 0.19.6, DataParallelSchedule.
class DEEPSPEED_API DataParallelSchedule : public PipeSchedule {
 public:
  using PipeSchedule::PipeSchedule;
  Steps steps() const override;
  int num_pipe_buffers() const override { return 1; }
};

}  // namespace deepspeed::pipe
