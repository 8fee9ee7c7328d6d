// Groups copies of many gradients into few launches on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Collects copies on a GPU and launches them together. On the CPU each copy is made at once, while the
/// gradient is still in the caches. Collected gradients stay alive until the launch, using at most 32 MiB.
/// All calls must be on one stream. Call flush() before reading or adding to a destination.
class CopyBatch {
 public:
  /// Copies between tensors of equal sizes, at once or at the next flush().
  void copy(const at::Tensor& destination, const at::Tensor& gradient);
  void flush();
  /// Forgets the copies that were not launched yet.
  void drop();

 private:
  std::vector<at::Tensor> destinations_, gradients_;
  int64_t bytes_ = 0;
};

}  // namespace deepspeed::zero
