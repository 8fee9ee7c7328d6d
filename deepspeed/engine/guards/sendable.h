// Makes tensors of any dtype sendable; backends do not accept complex numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

namespace deepspeed {

/// Returns `tensor`. For a complex one returns a real view that shares its memory.
inline at::Tensor sendable(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

}  // namespace deepspeed
