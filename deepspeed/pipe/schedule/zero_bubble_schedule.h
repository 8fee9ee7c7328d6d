// 1F1B with a backward in two halves; the second half fills idle slots (ZB-H1).
#pragma once

#include "deepspeed/pipe/schedule/timetable_schedule.h"

namespace deepspeed::pipe {

/// Trains a batch with BackwardInput and BackwardWeight instead of BackwardPass. Other stages wait only for
/// the first half. Of S stages, stage s delays the second half by s micro batches. It then holds the
/// activations of up to S micro batches, as many as the first stage of 1F1B, and fills the slots at the end
/// that 1F1B leaves idle. Source: Qi et al., Zero Bubble Pipeline Parallelism (2023), schedule ZB-H1.
class DEEPSPEED_API ZeroBubbleSchedule : public TimetableSchedule {
 public:
  ZeroBubbleSchedule(int micro_batches, int stages, int stage_id)
      : TimetableSchedule(micro_batches, stages, stage_id, 1) {}

 protected:
  Timetable timetable() const override;
};

}  // namespace deepspeed::pipe
