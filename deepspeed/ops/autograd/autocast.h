// What autocast asks of the operators of this layer, which it does not know.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace deepspeed::ops {

/// Returns whether autocast is on for the device of a tensor, which may be undefined.
inline bool is_autocast(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_cpu() || tensor.is_cuda()) &&
         at::autocast::is_autocast_enabled(tensor.device().type());
}

/// Returns the tensor, cast to autocast's dtype if autocast is on.
inline at::Tensor in_autocast_dtype(const at::Tensor& tensor) {
  if (!is_autocast(tensor)) return tensor;
  const at::DeviceType device = tensor.device().type();
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

}  // namespace deepspeed::ops
