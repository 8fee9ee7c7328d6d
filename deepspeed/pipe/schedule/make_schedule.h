// The schedules of a training, which the config key "pipeline.schedule" names, and that of an evaluation.
#pragma once

#include <memory>
#include <string>

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Makes the schedule of a stage. `kind` is "1f1b" (DeepSpeed's TrainSchedule), "interleaved" or
/// "zero_bubble"; `model_chunks` is how many parts of the model a stage holds: two or more for "interleaved",
/// else one. Throws UsageError naming the key `pipeline.schedule` or `pipeline.model_chunks` for anything
/// else.
DEEPSPEED_API std::unique_ptr<PipeSchedule> make_train_schedule(const std::string& kind, int micro_batches,
                                                                int stages, int stage_id,
                                                                int model_chunks = 1);

/// Makes DeepSpeed's InferenceSchedule for stages of one chunk. For stages of more, all micro batches go
/// through the first chunk of every stage, then through the second one, and so on: stages compute without a
/// pause from the first micro batch on where there are as many micro batches as stages.
DEEPSPEED_API std::unique_ptr<PipeSchedule> make_inference_schedule(int micro_batches, int stages,
                                                                    int stage_id, int model_chunks = 1);

}  // namespace deepspeed::pipe
