// Memory into which parameters are gathered. It is reused while gathers of the same size follow, since the
// heap may take new memory for each large block: glibc before 2.38 does not use the gaps that aligned blocks
// leave between small ones.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Keeps and reuses gather memory. Not thread-safe.
class GatherBuffers {
 public:
  /// Returns uninitialized memory, (numel). Dropping its last handle gives it back. Before allocating, take()
  /// frees unused buffers until they have no more bytes together than those in use.
  at::Tensor take(int64_t numel, const at::TensorOptions& options);
  /// Frees the buffers that are not in use.
  void drop_unused();

 private:
  std::vector<at::Tensor> buffers_;  // roughly, longest unused first
};

}  // namespace deepspeed::zero
