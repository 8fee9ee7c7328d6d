// The memory into which parameters are gathered, used again as long as gathers of the same size come: in the
// heap each new large block may take new memory, since gaps that large blocks leave between small ones are
// not used for aligned blocks of the same size (glibc before 2.38).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Not thread-safe by itself.
class GatherBuffers {
 public:
  /// Returns uninitialized memory, (numel), which its last handle gives back. Memory kept for later never
  /// takes more bytes than what is in use, this one included.
  at::Tensor take(int64_t numel, const at::TensorOptions& options);
  /// Frees the buffers that are not in use.
  void drop_unused();

 private:
  std::vector<at::Tensor> buffers_;  // the longest unused first, roughly
};

}  // namespace deepspeed::zero
