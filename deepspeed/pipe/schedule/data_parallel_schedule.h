// Gradient accumulation without a pipeline, as a schedule.
#pragma once

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Runs each micro batch forward and backward in one step. The last step also steps the optimizer. Source:
/// DeepSpeed 0.19.6, DataParallelSchedule.
class DEEPSPEED_API DataParallelSchedule : public PipeSchedule {
 public:
  using PipeSchedule::PipeSchedule;
  Steps steps() const override;
  int num_pipe_buffers() const override { return 1; }
};

}  // namespace deepspeed::pipe
