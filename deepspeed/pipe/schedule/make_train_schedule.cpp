#include "deepspeed/pipe/schedule/make_train_schedule.h"

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/schedule/interleaved_schedule.h"
#include "deepspeed/pipe/schedule/train_schedule.h"
#include "deepspeed/pipe/schedule/zero_bubble_schedule.h"

namespace deepspeed::pipe {

std::unique_ptr<PipeSchedule> make_train_schedule(const std::string& kind, int micro_batches, int stages,
                                                  int stage_id, int model_chunks) {
  if (kind == "interleaved") {
    if (stages < 2 || model_chunks < 2) {
      raise<UsageError>("pipeline.schedule is 'interleaved' with ", stages,
                        " stages and pipeline.model_chunks ", model_chunks,
                        ", expected 2 or more of both, or the schedule '1f1b'");
    }
    return std::make_unique<InterleavedSchedule>(micro_batches, stages, stage_id, model_chunks);
  }
  if (kind != "1f1b" && kind != "zero_bubble") {
    raise<UsageError>("pipeline.schedule is '", kind, "', expected '1f1b', 'interleaved' or 'zero_bubble'");
  }
  if (model_chunks != 1) {
    raise<UsageError>("pipeline.model_chunks is ", model_chunks, ", expected 1 for the schedule '", kind,
                      "', or the schedule 'interleaved'");
  }
  if (kind == "1f1b") return std::make_unique<TrainSchedule>(micro_batches, stages, stage_id);
  return std::make_unique<ZeroBubbleSchedule>(micro_batches, stages, stage_id);
}

}  // namespace deepspeed::pipe
