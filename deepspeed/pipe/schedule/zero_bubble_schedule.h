// 1F1B with a backward in two halves, of which the second fills slots that would be idle (ZB-H1).
#pragma once

#include "deepspeed/pipe/schedule/timetable_schedule.h"

namespace deepspeed::pipe {

/// Trains a batch with BackwardInput and BackwardWeight in place of BackwardPass. Only the first half is
/// waited for by other stages; the second is done where a stage has nothing else to do, or holds as many
/// activations as it may: those of S micro batches, the most that any stage of 1F1B holds. Source: Qi et al.,
/// Zero Bubble Pipeline Parallelism (2023), 2.2.
class DEEPSPEED_API ZeroBubbleSchedule : public TimetableSchedule {
 public:
  ZeroBubbleSchedule(int micro_batches, int stages, int stage_id)
      : TimetableSchedule(micro_batches, stages, stage_id, 1) {}

 protected:
  Timetable timetable() const override;
};

}  // namespace deepspeed::pipe
