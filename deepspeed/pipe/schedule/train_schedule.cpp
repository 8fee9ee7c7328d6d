#include "deepspeed/pipe/schedule/train_schedule.h"

#include <algorithm>

namespace deepspeed::pipe {

using enum InstructionKind;

int TrainSchedule::num_pipe_buffers() const {
  return std::max(2, std::min(num_stages() - stage(), num_micro_batches()));
}

// The forward of micro batch m is at step 2 * m + stage, its backward at 2 * (m + S) - 1 - stage. That is the
// time for the forward to reach the last stage and for the gradient to return. The two have different
// parities, so a step has only one of them. The division is exact, also for negative numbers.
TrainSchedule::Turn TrainSchedule::turn(int step) const {
  if ((step - stage()) % 2 == 0) return {(step - stage()) / 2, true};
  return {(step + 1 + stage()) / 2 - num_stages(), false};
}

void TrainSchedule::exchange(const Turn& previous, const Turn& now,
                             std::vector<Instruction>& instructions) const {
  const auto add = [&](InstructionKind kind, int micro_batch) {
    if (!valid_micro_batch(micro_batch)) return;
    instructions.push_back({kind, buffer_index(micro_batch), micro_batch});
  };
  if (now.is_forward && !is_first_stage()) {
    add(kSendGrad, previous.micro_batch);
    add(kRecvActivation, now.micro_batch);
  }
  if (!now.is_forward && !is_last_stage()) {
    add(kRecvGrad, now.micro_batch);
    add(kSendActivation, previous.micro_batch);
  }
}

void TrainSchedule::compute(const Turn& now, std::vector<Instruction>& instructions) const {
  if (!valid_micro_batch(now.micro_batch)) return;
  const int buffer = buffer_index(now.micro_batch);
  if (now.is_forward && (is_first_stage() || is_last_stage())) {
    instructions.push_back({kLoadMicroBatch, buffer, now.micro_batch});
  }
  instructions.push_back({now.is_forward ? kForwardPass : kBackwardPass, buffer, now.micro_batch});
}

Steps TrainSchedule::steps() const {
  Steps result(2 * (num_micro_batches() + num_stages() - 1));
  Turn previous{-1, false};
  for (size_t step = 0; step < result.size(); ++step) {
    const Turn now = turn(static_cast<int>(step));
    exchange(previous, now, result[step]);
    compute(now, result[step]);
    previous = now;
  }
  for (const auto kind : {kReduceTiedGrads, kReduceGrads, kOptimizerStep}) result.back().push_back({kind});
  return result;
}

}  // namespace deepspeed::pipe
