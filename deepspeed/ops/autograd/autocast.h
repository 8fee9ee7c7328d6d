// Autocast knows only torch's operators. These functions do its casts for the operators of this layer.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace deepspeed::ops {

/// Returns whether autocast is on for a tensor's device. False for an undefined tensor.
inline bool is_autocast(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_cpu() || tensor.is_cuda()) &&
         at::autocast::is_autocast_enabled(tensor.device().type());
}

/// Returns the tensor, cast to autocast's dtype if autocast is on for its device.
inline at::Tensor in_autocast_dtype(const at::Tensor& tensor) {
  if (!is_autocast(tensor)) return tensor;
  const at::DeviceType device = tensor.device().type();
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

}  // namespace deepspeed::ops
