#include "deepspeed/pipe/schedule/zero_bubble_schedule.h"

#include <algorithm>

namespace deepspeed::pipe {

using enum InstructionKind;

namespace {

/// Appends the weight backward of micro batch `weights` to `order`, and counts `weights` up.
void add_weight(std::vector<Pass>& order, int& weights) { order.push_back({kBackwardWeight, weights++}); }

/// Returns the passes of a stage in order. As in 1F1B, stage s does several forwards before its first
/// backward. It delays weight backwards by s micro batches, so that all stages hold equally many activations.
std::vector<Pass> split_order(const PipeShape& shape, int stage) {
  const int warmup = std::min(shape.stages - 1 - stage, shape.micro_batches);
  int forwards = 0;
  int weights = 0;
  std::vector<Pass> order;
  while (forwards < warmup) order.push_back({kForwardPass, forwards++});
  for (int i = 0; i < shape.micro_batches; ++i) {
    if (forwards < shape.micro_batches) order.push_back({kForwardPass, forwards++});
    order.push_back({kBackwardInput, i});
    if (i >= stage) add_weight(order, weights);
  }
  while (weights < shape.micro_batches) add_weight(order, weights);
  return order;
}

}  // namespace

Timetable ZeroBubbleSchedule::timetable() const {
  std::vector<std::vector<Pass>> orders;
  for (int stage = 0; stage < num_stages(); ++stage) orders.push_back(split_order(shape(), stage));
  return place_in_order(shape(), orders);
}

}  // namespace deepspeed::pipe
