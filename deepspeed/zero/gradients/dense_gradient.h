// Converts gradients to the dense tensors that flat buffers need.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Returns `gradient` itself if dense, or a sparse one (of an embedding) with its zeros.
inline at::Tensor dense_gradient(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
}

}  // namespace deepspeed::zero
