#include "deepspeed/pipe/schedule/pipe_schedule.h"

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {

PipeSchedule::PipeSchedule(int micro_batches, int stages, int stage_id)
    : micro_batches_(micro_batches), stages_(stages), stage_id_(stage_id) {
  if (micro_batches < 1) raise<UsageError>("micro_batches is ", micro_batches, ", expected 1 or more");
  if (stages < 1) raise<UsageError>("stages is ", stages, ", expected 1 or more");
  if (stage_id < 0 || stage_id >= stages) {
    raise<UsageError>("stage_id is ", stage_id, ", expected 0 to ", stages - 1);
  }
}

}  // namespace deepspeed::pipe
