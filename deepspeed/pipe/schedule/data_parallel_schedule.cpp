#include "deepspeed/pipe/schedule/data_parallel_schedule.h"

namespace deepspeed::pipe {

using enum InstructionKind;

Steps DataParallelSchedule::steps() const {
  Steps result;
  for (int micro_batch = 0; micro_batch < num_micro_batches(); ++micro_batch) {
    auto& step = result.emplace_back();
    for (const auto kind : {kLoadMicroBatch, kForwardPass, kBackwardPass}) {
      step.push_back({kind, 0, micro_batch});
    }
  }
  for (const auto kind : {kReduceGrads, kOptimizerStep}) result.back().push_back({kind});
  return result;
}

}  // namespace deepspeed::pipe
