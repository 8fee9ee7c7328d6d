#include "deepspeed/pipe/analysis/pipeline_steps.h"

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/schedule/inference_schedule.h"
#include "deepspeed/pipe/schedule/make_schedule.h"

namespace deepspeed::pipe {
namespace {

void add_stage(PipelineSteps& pipeline, const PipeSchedule& schedule) {
  pipeline.stages.push_back(schedule.steps());
  pipeline.num_buffers.push_back(schedule.num_pipe_buffers());
}

/// Throws UsageError if all stages together have too many steps. A stage has about 2 * (passes + stages).
void require_size(int micro_batches, int stages, int model_chunks) {
  const double passes = double(micro_batches) * model_chunks;
  const double steps = 2.0 * (passes + stages) * stages;
  if (steps <= double(kMaxPipelineSteps)) return;
  raise<UsageError>("got ", stages, " stages and ", micro_batches, " micro batches, which make ", steps,
                    " steps, expected at most ", kMaxPipelineSteps, "; show fewer");
}

}  // namespace

PipelineSteps train_steps(const std::string& kind, int micro_batches, int stages, int model_chunks) {
  require_size(micro_batches, stages, model_chunks);
  PipelineSteps pipeline{micro_batches, model_chunks, {}, {}};
  add_stage(pipeline, *make_train_schedule(kind, micro_batches, stages, 0, model_chunks));
  for (int stage = 1; stage < stages; ++stage) {
    add_stage(pipeline, *make_train_schedule(kind, micro_batches, stages, stage, model_chunks));
  }
  return pipeline;
}

PipelineSteps inference_steps(int micro_batches, int stages) {
  require_size(micro_batches, stages, 1);
  PipelineSteps pipeline{micro_batches, 1, {}, {}};
  add_stage(pipeline, InferenceSchedule(micro_batches, stages, 0));
  for (int stage = 1; stage < stages; ++stage) {
    add_stage(pipeline, InferenceSchedule(micro_batches, stages, stage));
  }
  return pipeline;
}

}  // namespace deepspeed::pipe
