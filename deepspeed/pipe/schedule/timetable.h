// Which pass each stage computes in which time slot, for schedules found by placing passes one after the
// other. A slot is as long as any pass; sends take no time.
#pragma once

#include <optional>
#include <vector>

#include "deepspeed/pipe/schedule/instruction.h"

namespace deepspeed::pipe {

/// Describes a forward, backward or half a backward of a micro batch through one chunk.
struct Pass {
  InstructionKind kind;
  int micro_batch;
  int model_chunk = 0;
};

/// Holds the passes of one stage, by slot; idle slots are empty.
using TimetableRow = std::vector<std::optional<Pass>>;
/// Holds the rows of all stages, equally long.
using Timetable = std::vector<TimetableRow>;

/// Holds the sizes of a pipeline. Chunk c of stage s is part c * stages + s of the model.
struct PipeShape {
  int micro_batches;
  int stages;
  int model_chunks = 1;
};

/// Records when passes were done, and says which may follow. A forward needs the previous part's forward. A
/// backward needs its own forward and the next part's backward. BackwardWeight needs its BackwardInput.
class PassTimes {
 public:
  explicit PassTimes(const PipeShape& shape);
  /// Returns whether all passes that this pass needs were done before `slot`.
  bool is_ready(int stage, const Pass& pass, int slot) const;
  void record(int stage, const Pass& pass, int slot);

 private:
  size_t index(int part, int micro_batch) const { return size_t(part) * shape_.micro_batches + micro_batch; }
  PipeShape shape_;
  std::vector<int> forward_slots_;   // by part and micro batch
  std::vector<int> backward_slots_;  // of BackwardPass or BackwardInput
};

/// Places the passes of each stage in order, each as early as possible. Throws UsageError if the stages would
/// wait for each other forever.
Timetable place_in_order(const PipeShape& shape, const std::vector<std::vector<Pass>>& orders);

}  // namespace deepspeed::pipe
