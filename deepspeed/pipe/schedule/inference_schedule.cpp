#include "deepspeed/pipe/schedule/inference_schedule.h"

namespace deepspeed::pipe {

using enum InstructionKind;

std::vector<Instruction> InferenceSchedule::step(int step) const {
  const int arriving = step - stage();
  const int leaving = arriving - 1;
  const bool is_even = stage() % 2 == 0;
  // A micro batch keeps the buffer of its arrival: the parity of its step, flipped on odd stages.
  const int receive_buffer = (step + stage()) % 2;
  const bool arrives = valid_micro_batch(arriving);
  const bool sends = !is_last_stage() && valid_micro_batch(leaving);
  const Instruction send{kSendActivation, 1 - receive_buffer, leaving};

  std::vector<Instruction> result;
  const auto add = [&](InstructionKind kind) { result.push_back({kind, receive_buffer, arriving}); };
  if (arrives && (is_first_stage() || is_last_stage())) add(kLoadMicroBatch);
  if (sends && is_even) result.push_back(send);
  if (arrives && !is_first_stage()) add(kRecvActivation);
  if (sends && !is_even) result.push_back(send);
  if (arrives) add(kForwardPass);
  return result;
}

Steps InferenceSchedule::steps() const {
  Steps result;
  for (int i = 0; i < num_micro_batches() + num_stages() - 1; ++i) result.push_back(step(i));
  return result;
}

}  // namespace deepspeed::pipe
