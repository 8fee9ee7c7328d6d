#include "deepspeed/pipe/schedule/interleaved_schedule.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::pipe {

namespace {

/// Returns the forwards of a stage in order, which is the same for all stages.
std::vector<Pass> forward_order(const PipeShape& shape) {
  std::vector<Pass> order;
  int begin = 0;
  for (const int size : interleaved_groups(shape.micro_batches, shape.stages)) {
    for (int chunk = 0; chunk < shape.model_chunks; ++chunk) {
      for (int i = 0; i < size; ++i) order.push_back({InstructionKind::kForwardPass, begin + i, chunk});
    }
    begin += size;
  }
  return order;
}

/// Returns how many forwards a stage does before its first backward. The last chunk's first micro batch must
/// reach the last stage, and its gradient must return, which takes two slots per stage.
int warmup_passes(const PipeShape& shape, int stage) {
  const int group = interleaved_groups(shape.micro_batches, shape.stages).front();
  const int wanted = 2 * (shape.stages - 1 - stage) + (shape.model_chunks - 1) * group;
  return std::min(wanted, shape.model_chunks * shape.micro_batches);
}

/// Returns forwards and backwards of a stage in order: warm up, alternate, drain.
std::vector<Pass> interleaved_order(const PipeShape& shape, int stage) {
  const auto forwards = forward_order(shape);
  const size_t warmup = warmup_passes(shape, stage);
  std::vector<Pass> order(forwards.begin(), forwards.begin() + warmup);
  for (size_t i = 0; i < forwards.size(); ++i) {
    if (warmup + i < forwards.size()) order.push_back(forwards[warmup + i]);
    // Gradients come from the last chunk first.
    const int chunk = shape.model_chunks - 1 - forwards[i].model_chunk;
    order.push_back({InstructionKind::kBackwardPass, forwards[i].micro_batch, chunk});
  }
  return order;
}

}  // namespace

std::vector<int> interleaved_groups(int micro_batches, int stages) {
  const int count = std::max(1, micro_batches / stages);
  std::vector<int> groups(count, micro_batches / count);
  for (int i = 0; i < micro_batches % count; ++i) ++groups[i];
  return groups;
}

InterleavedSchedule::InterleavedSchedule(int micro_batches, int stages, int stage_id, int model_chunks)
    : TimetableSchedule(micro_batches, stages, stage_id, model_chunks) {
  if (stages < 2)
    raise<UsageError>("stages is ", stages, ", expected 2 or more for the interleaved schedule");
  if (model_chunks < 2) {
    raise<UsageError>("model_chunks is ", model_chunks, ", expected 2 or more for the interleaved schedule");
  }
}

Timetable InterleavedSchedule::timetable() const {
  std::vector<std::vector<Pass>> orders;
  for (int stage = 0; stage < num_stages(); ++stage) orders.push_back(interleaved_order(shape(), stage));
  return place_in_order(shape(), orders);
}

}  // namespace deepspeed::pipe
