#include "deepspeed/pipe/schedule/timetable.h"

#include <limits>

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {
namespace {

constexpr int kNotDone = std::numeric_limits<int>::max();

}  // namespace

PassTimes::PassTimes(const PipeShape& shape)
    : shape_(shape),
      forward_slots_(size_t(shape.stages) * shape.model_chunks * shape.micro_batches, kNotDone),
      backward_slots_(forward_slots_) {}

bool PassTimes::is_ready(int stage, const Pass& pass, int slot) const {
  const int part = pass.model_chunk * shape_.stages + stage;
  const auto done = [&](const std::vector<int>& slots, int of_part) {
    return slots[index(of_part, pass.micro_batch)] < slot;
  };
  if (pass.kind == InstructionKind::kForwardPass) return part == 0 || done(forward_slots_, part - 1);
  if (pass.kind == InstructionKind::kBackwardWeight) return done(backward_slots_, part);
  const bool is_last = part == shape_.stages * shape_.model_chunks - 1;
  return done(forward_slots_, part) && (is_last || done(backward_slots_, part + 1));
}

void PassTimes::record(int stage, const Pass& pass, int slot) {
  if (pass.kind == InstructionKind::kBackwardWeight) return;
  auto& slots = pass.kind == InstructionKind::kForwardPass ? forward_slots_ : backward_slots_;
  slots[index(pass.model_chunk * shape_.stages + stage, pass.micro_batch)] = slot;
}

Timetable place_in_order(const PipeShape& shape, const std::vector<std::vector<Pass>>& orders) {
  PassTimes times(shape);
  Timetable table(shape.stages);
  std::vector<size_t> next(shape.stages, 0);
  size_t left = 0;
  for (const auto& order : orders) left += order.size();
  for (int slot = 0; left > 0; ++slot) {
    const size_t left_before = left;
    for (int stage = 0; stage < shape.stages; ++stage) {
      auto& place = table[stage].emplace_back();
      if (next[stage] == orders[stage].size()) continue;
      const Pass& pass = orders[stage][next[stage]];
      if (!times.is_ready(stage, pass, slot)) continue;
      place = pass;
      times.record(stage, pass, slot);
      ++next[stage];
      --left;
    }
    if (left == left_before) raise<UsageError>("the orders of the passes wait for each other in slot ", slot);
  }
  return table;
}

}  // namespace deepspeed::pipe
