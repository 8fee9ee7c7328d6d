// The schedule of an evaluation.
#pragma once

#include <memory>

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Makes DeepSpeed's InferenceSchedule for stages of one chunk. For stages of more, all micro batches go
/// through the first chunk of every stage, then through the second one, and so on: stages compute without a
/// pause from the first micro batch on where there are as many micro batches as stages.
DEEPSPEED_API std::unique_ptr<PipeSchedule> make_inference_schedule(int micro_batches, int stages,
                                                                    int stage_id, int model_chunks = 1);

}  // namespace deepspeed::pipe
