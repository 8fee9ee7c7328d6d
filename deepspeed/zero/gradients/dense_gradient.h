// A gradient as the dense tensor that flat buffers take.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// `gradient` itself where it is dense; a sparse one (of an embedding) with its zeros.
inline at::Tensor dense_gradient(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
}

}  // namespace deepspeed::zero
