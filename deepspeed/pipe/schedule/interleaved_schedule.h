// Interleaved 1F1B: a stage holds several chunks of layers that lie apart in the model.
#pragma once

#include "deepspeed/pipe/schedule/timetable_schedule.h"

namespace deepspeed::pipe {

/// Trains a batch with v chunks of layers a stage, whose passes are 1/v as long, so that filling and draining
/// the pipeline costs 1/v as much as 1F1B. Groups of micro batches go through chunk after chunk.
/// The groups have S micro batches each where S divides M; else they are as equal as can be and none is
/// smaller than S; less than S micro batches are one group. Source: Narayanan et al., Efficient Large-Scale
/// Language Model Training on GPU Clusters (2021), 2.2.
class DEEPSPEED_API InterleavedSchedule : public TimetableSchedule {
 public:
  /// Throws UsageError for less than two stages or two chunks.
  InterleavedSchedule(int micro_batches, int stages, int stage_id, int model_chunks);

 protected:
  Timetable timetable() const override;
};

/// Returns how many micro batches each group of the interleaved schedule has, the largest first.
DEEPSPEED_API std::vector<int> interleaved_groups(int micro_batches, int stages);

}  // namespace deepspeed::pipe
