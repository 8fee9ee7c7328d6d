// Interleaved 1F1B: a stage holds several chunks of layers from different places in the model.
#pragma once

#include "deepspeed/pipe/schedule/timetable_schedule.h"

namespace deepspeed::pipe {

/// Trains M micro batches on S stages with v chunks of layers each. Passes are 1/v as long, so filling and
/// draining the pipeline costs 1/v as much as in 1F1B. Groups of micro batches go through chunk after chunk.
/// The groups have S micro batches each if S divides M. Otherwise they are as equal as possible and none is
/// smaller than S; fewer than S micro batches form one group. Source: Narayanan et al., Efficient Large-Scale
/// Language Model Training on GPU Clusters (2021), 2.2.
class DEEPSPEED_API InterleavedSchedule : public TimetableSchedule {
 public:
  /// Throws UsageError for less than two stages or two chunks.
  InterleavedSchedule(int micro_batches, int stages, int stage_id, int model_chunks);

 protected:
  Timetable timetable() const override;
};

/// Returns the group sizes of the interleaved schedule in micro batches, the largest first.
DEEPSPEED_API std::vector<int> interleaved_groups(int micro_batches, int stages);

}  // namespace deepspeed::pipe
