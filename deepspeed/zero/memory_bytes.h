// Memory of model states.
#pragma once

#include <cstdint>

namespace deepspeed::zero {

/// Counts the bytes that this rank holds between steps.
struct MemoryBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t master_weights = 0;  // 0 if the parameters are the masters: 16-bit, or fp32 without offload
  int64_t optimizer_states = 0;
  // Buffers for states and shards on a disk, and super_offload's new weights until step() takes them.
  int64_t swap_buffers = 0;
  int64_t on_disk = 0;  // bytes on a disk; not part of the total
  int64_t total() const { return parameters + gradients + master_weights + optimizer_states + swap_buffers; }
};

}  // namespace deepspeed::zero
