// torch's autocast for a scope, and the dtype in which the gradients of a parameter travel under it:
// DeepSpeed's `torch_autocast`. The arithmetic of a forward is chosen by torch, operation by operation; the
// modules that the config lists decide whose gradients are reduced in the lower precision.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::precision {

/// Turns autocast to `dtype` on `device` on while it lives, and back to what was before. Cast weights are
/// kept until the outermost scope ends.
class DEEPSPEED_API AutocastScope {
 public:
  AutocastScope(at::DeviceType device, at::ScalarType dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType previous_dtype_;
};

/// Returns torch's dtype where torch_autocast.dtype is absent: bf16 on the CPU, fp16 on CUDA.
DEEPSPEED_API at::ScalarType default_autocast_dtype(at::DeviceType device);

/// The classes whose parameters are marked where the config lists none, as DeepSpeed names them:
/// torch.nn.Linear and the convolutions.
DEEPSPEED_API std::vector<std::string> get_default_autocast_lower_precision_modules();

/// Whether a C++ class, e.g. "torch::nn::LinearImpl" or "my::Block", is one of `names`, which may be spelled
/// as in Python ("torch.nn.Linear", "my.Block") or as in C++.
DEEPSPEED_API bool is_autocast_module(const std::string& class_name, const std::vector<std::string>& names);

/// Marks a parameter: its gradient is reduced in `dtype`, by engines that are made then with torch_autocast.
DEEPSPEED_API void set_autocast_dtype(const at::Tensor& param, at::ScalarType dtype);
/// Takes the mark away, if there is one.
DEEPSPEED_API void clear_autocast_dtype(const at::Tensor& param);
/// The dtype of the parameter's mark, if it has one.
DEEPSPEED_API std::optional<at::ScalarType> find_autocast_dtype(const at::Tensor& param);
DEEPSPEED_API bool has_autocast_dtype(const at::Tensor& param);
/// The dtype of the parameter's mark. Throws UsageError for a parameter that was not marked.
DEEPSPEED_API at::ScalarType get_autocast_dtype(const at::Tensor& param);
/// Whether this process has marked parameters.
DEEPSPEED_API bool is_autocast_initialized();

}  // namespace deepspeed::precision
