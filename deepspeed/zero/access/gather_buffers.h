// The memory into which parameters are gathered. It is used again as long as gathers of the same size come,
// since the heap may take new memory for each large block: glibc before 2.38 does not use the gaps that
// aligned blocks leave between small ones.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Not thread-safe by itself.
class GatherBuffers {
 public:
  /// Returns uninitialized memory, (numel). Dropping its last handle gives it back. What is kept for later
  /// never takes more bytes than what is in use, this one included.
  at::Tensor take(int64_t numel, const at::TensorOptions& options);
  /// Frees the buffers that are not in use.
  void drop_unused();

 private:
  std::vector<at::Tensor> buffers_;  // the longest unused first, roughly
};

}  // namespace deepspeed::zero
