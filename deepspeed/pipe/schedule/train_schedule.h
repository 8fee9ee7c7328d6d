// One forward, one backward (1F1B), by DeepSpeed's step table.
#pragma once

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Trains a batch. Forward and backward steps alternate on each stage, on odd stages one step later than on
/// even ones. A step's result is sent at the begin of the next step. M micro batches take 2 * (M + S - 1)
/// steps on S stages. Source: DeepSpeed 0.19.6, TrainSchedule; Narayanan et al., PipeDream-Flush (2021).
class DEEPSPEED_API TrainSchedule : public PipeSchedule {
 public:
  using PipeSchedule::PipeSchedule;
  Steps steps() const override;
  /// Returns max(2, min(S - stage, M)). A stage starts that many forwards before its first backward is done.
  int num_pipe_buffers() const override;

 private:
  /// Says what a stage does in a step. If the micro batch is out of range, the stage is idle.
  struct Turn {
    int micro_batch;
    bool is_forward;
  };
  Turn turn(int step) const;
  void exchange(const Turn& previous, const Turn& now, std::vector<Instruction>& instructions) const;
  void compute(const Turn& now, std::vector<Instruction>& instructions) const;
};

}  // namespace deepspeed::pipe
