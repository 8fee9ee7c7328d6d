// Which pass each stage computes in which slot of time, for schedules that are found by placing passes one
// after the other. A slot is as long as any pass; sends take no time.
#pragma once

#include <optional>
#include <vector>

#include "deepspeed/pipe/schedule/instruction.h"

namespace deepspeed::pipe {

/// A forward, backward or half a backward of a micro batch through one chunk of a stage's layers.
struct Pass {
  InstructionKind kind;
  int micro_batch;
  int model_chunk = 0;
};

/// The passes of one stage, by slot; idle slots are empty.
using TimetableRow = std::vector<std::optional<Pass>>;
/// The rows of all stages, equally long.
using Timetable = std::vector<TimetableRow>;

/// The sizes of a pipeline. Chunk c of stage s is the part c * stages + s of the model.
struct PipeShape {
  int micro_batches;
  int stages;
  int model_chunks = 1;
};

/// Remembers when passes were done, and says which others may follow. A forward needs that of the part
/// before, a backward its own forward and the backward of the part behind, BackwardWeight its BackwardInput.
class PassTimes {
 public:
  explicit PassTimes(const PipeShape& shape);
  /// Says whether the pass can be computed in `slot`: what it needs was done in earlier slots.
  bool is_ready(int stage, const Pass& pass, int slot) const;
  void record(int stage, const Pass& pass, int slot);

 private:
  size_t index(int part, int micro_batch) const { return size_t(part) * shape_.micro_batches + micro_batch; }
  PipeShape shape_;
  std::vector<int> forward_slots_;   // by part and micro batch
  std::vector<int> backward_slots_;  // of BackwardPass or BackwardInput
};

/// Places the passes of each stage in their order, each as early as it can be computed. Throws UsageError
/// where the stages would wait for each other for ever.
Timetable place_in_order(const PipeShape& shape, const std::vector<std::vector<Pass>>& orders);

}  // namespace deepspeed::pipe
