// Ranks send a tensor of any type in this form, since backends take no complex numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

namespace deepspeed {

/// Returns `tensor`, or where it is complex its real and imaginary parts, which share its memory.
inline at::Tensor sendable(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

}  // namespace deepspeed
