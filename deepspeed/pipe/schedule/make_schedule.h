// Makes training schedules, named by the config key "pipeline.schedule", and the evaluation schedule.
#pragma once

#include <memory>
#include <string>

#include "deepspeed/pipe/schedule/pipe_schedule.h"

namespace deepspeed::pipe {

/// Makes the training schedule of stage `stage_id`. `kind` is "1f1b" (DeepSpeed's TrainSchedule),
/// "interleaved" or "zero_bubble". `model_chunks` is how many parts of the model a stage holds: two or more
/// for "interleaved", otherwise one. Throws UsageError naming the key `pipeline.schedule` or
/// `pipeline.model_chunks` for anything else.
DEEPSPEED_API std::unique_ptr<PipeSchedule> make_train_schedule(const std::string& kind, int micro_batches,
                                                                int stages, int stage_id,
                                                                int model_chunks = 1);

/// Makes DeepSpeed's InferenceSchedule for stages of one chunk. With more chunks, all micro batches go
/// through the first chunk of every stage, then through the second, and so on. With as many micro batches as
/// stages, each stage computes without a pause from the first micro batch on.
DEEPSPEED_API std::unique_ptr<PipeSchedule> make_inference_schedule(int micro_batches, int stages,
                                                                    int stage_id, int model_chunks = 1);

}  // namespace deepspeed::pipe
