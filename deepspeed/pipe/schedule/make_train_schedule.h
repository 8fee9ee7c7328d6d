// The schedules that the config key "pipeline.schedule" names.
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

}  // namespace deepspeed::pipe
