#include "deepspeed/pipe/schedule/zero_bubble_schedule.h"

namespace deepspeed::pipe {

using enum InstructionKind;

namespace {

/// How many passes of each kind a stage has done; micro batches go in their order.
struct StageCounts {
  int forwards = 0;
  int inputs = 0;
  int weights = 0;
};

/// Says what a stage does next. Gradients come first, since the stage before waits for them; then a forward,
/// where one more activation may be held; weights wait for neither.
std::optional<Pass> choose_pass(const PipeShape& shape, const PassTimes& times, const StageCounts& counts,
                                int stage, int slot) {
  const Pass input{kBackwardInput, counts.inputs};
  if (counts.inputs < shape.micro_batches && times.is_ready(stage, input, slot)) return input;
  const Pass forward{kForwardPass, counts.forwards};
  const bool has_room = counts.forwards - counts.weights < shape.stages;
  if (has_room && counts.forwards < shape.micro_batches && times.is_ready(stage, forward, slot))
    return forward;
  if (counts.weights < counts.inputs) return Pass{kBackwardWeight, counts.weights};
  return std::nullopt;
}

void count_pass(const Pass& pass, StageCounts& counts) {
  counts.forwards += int(pass.kind == kForwardPass);
  counts.inputs += int(pass.kind == kBackwardInput);
  counts.weights += int(pass.kind == kBackwardWeight);
}

}  // namespace

Timetable ZeroBubbleSchedule::timetable() const {
  PassTimes times(shape());
  Timetable table(num_stages());
  std::vector<StageCounts> counts(num_stages());
  int stages_left = num_stages();
  for (int slot = 0; stages_left > 0; ++slot) {
    for (int stage = 0; stage < num_stages(); ++stage) {
      const auto pass = choose_pass(shape(), times, counts[stage], stage, slot);
      table[stage].push_back(pass);
      if (!pass) continue;
      times.record(stage, *pass, slot);
      count_pass(*pass, counts[stage]);
      stages_left -= int(counts[stage].weights == num_micro_batches());
    }
  }
  return table;
}

}  // namespace deepspeed::pipe
