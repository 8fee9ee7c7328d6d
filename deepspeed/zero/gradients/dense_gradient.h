// Converts gradients to the dense tensors that flat buffers need, and counts the buffers' bytes.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Returns `gradient` itself if dense; converts a sparse one (of an embedding) to dense.
inline at::Tensor dense_gradient(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
}

inline int64_t bytes_of(const std::vector<at::Tensor>& buffers) {
  int64_t bytes = 0;
  for (const at::Tensor& buffer : buffers) bytes += static_cast<int64_t>(buffer.nbytes());
  return bytes;
}

}  // namespace deepspeed::zero
