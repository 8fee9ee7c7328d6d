#include "deepspeed/pipe/schedule/make_schedule.h"

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/schedule/inference_schedule.h"
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

namespace {

class ChunkedInferenceSchedule : public PipeSchedule {
 public:
  ChunkedInferenceSchedule(int micro_batches, int stages, int stage_id, int model_chunks)
      : PipeSchedule(micro_batches, stages, stage_id), model_chunks_(model_chunks) {}

  Steps steps() const override {
    Steps steps;
    for (int chunk = 0; chunk < model_chunks_; ++chunk) {
      for (int micro_batch = 0; micro_batch < num_micro_batches(); ++micro_batch)
        steps.push_back(passage(chunk, micro_batch));
    }
    return steps;
  }

 private:
  std::vector<Instruction> passage(int chunk, int micro_batch) const {
    const bool is_first = is_first_stage() && chunk == 0;
    const bool is_last = is_last_stage() && chunk == model_chunks_ - 1;
    std::vector<Instruction> instructions;
    const auto add = [&](InstructionKind kind) {
      instructions.push_back({kind, micro_batch, micro_batch, chunk});
    };
    if (is_first || is_last) add(InstructionKind::kLoadMicroBatch);
    if (!is_first) add(InstructionKind::kRecvActivation);
    add(InstructionKind::kForwardPass);
    if (!is_last) add(InstructionKind::kSendActivation);
    return instructions;
  }

  int model_chunks_;
};

}  // namespace

std::unique_ptr<PipeSchedule> make_inference_schedule(int micro_batches, int stages, int stage_id,
                                                      int model_chunks) {
  if (model_chunks < 1) raise<UsageError>("model_chunks is ", model_chunks, ", expected 1 or more");
  if (model_chunks == 1) return std::make_unique<InferenceSchedule>(micro_batches, stages, stage_id);
  return std::make_unique<ChunkedInferenceSchedule>(micro_batches, stages, stage_id, model_chunks);
}

}  // namespace deepspeed::pipe
