// What ranks send of a tensor of any type: backends take no complex numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

namespace deepspeed {

/// `tensor`, or where it is complex its real and imaginary parts: the same memory.
inline at::Tensor sendable(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

}  // namespace deepspeed
