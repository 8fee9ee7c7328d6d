#include "deepspeed/pipe/schedule/make_inference_schedule.h"

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/schedule/inference_schedule.h"

namespace deepspeed::pipe {
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
