// Copies of many gradients, which a GPU gets as few launches.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Collects copies on a GPU, and launches them together; on the CPU, whose caches still hold a gradient, each
/// is made at once. A gradient lives until its copy is launched, so that collected ones take memory: 32 MiB
/// at most. All calls belong to one stream, and whoever reads or adds to a destination flushes first.
class CopyBatch {
 public:
  /// Copies between tensors of equal sizes, now or with the next flush().
  void copy(const at::Tensor& destination, const at::Tensor& gradient);
  void flush();
  /// Forgets what was not launched yet.
  void drop();

 private:
  std::vector<at::Tensor> destinations_, gradients_;
  int64_t bytes_ = 0;
};

}  // namespace deepspeed::zero
