// The schedules of all stages of a pipeline together, for checks, figures and drawings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/schedule/instruction.h"

namespace deepspeed::pipe {

struct PipelineSteps {
  int micro_batches;
  int model_chunks;
  std::vector<Steps> stages;     // the steps of each stage
  std::vector<int> num_buffers;  // of each stage

  int num_stages() const { return static_cast<int>(stages.size()); }
};

/// Limits the total number of steps of all stages of a pipeline.
inline constexpr int64_t kMaxPipelineSteps = int64_t{1} << 22;

/// Makes the training schedule of each stage. Arguments and errors are those of make_train_schedule. Throws
/// UsageError for more than kMaxPipelineSteps steps in total.
DEEPSPEED_API PipelineSteps train_steps(const std::string& kind, int micro_batches, int stages,
                                        int model_chunks = 1);

/// Makes the InferenceSchedule of each stage.
DEEPSPEED_API PipelineSteps inference_steps(int micro_batches, int stages);

}  // namespace deepspeed::pipe
