// torch's autocast for a scope, and the dtype in which gradients are then reduced: DeepSpeed's
// `torch_autocast`. torch chooses the arithmetic of a forward, operation by operation. The modules listed in
// the config determine whose gradients are reduced in the lower precision.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::precision {

/// Enables autocast to `dtype` on `device` while the scope exists, then restores the previous state. Cast
/// weights are cached until the outermost scope ends.
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

/// Returns torch's default dtype: bf16 on the CPU, fp16 on CUDA. The engine uses it if the config has no
/// torch_autocast.dtype.
DEEPSPEED_API at::ScalarType default_autocast_dtype(at::DeviceType device);

/// Returns the module classes whose gradients are by default reduced in the lower dtype. The names are
/// DeepSpeed's: torch.nn.Linear and the convolutions. The engine uses them if the config lists none.
DEEPSPEED_API std::vector<std::string> get_default_autocast_lower_precision_modules();

/// Returns whether a C++ class, e.g. "torch::nn::LinearImpl" or "my::Block", is in `names`. Names may be
/// spelled as in Python ("torch.nn.Linear", "my.Block") or as in C++.
DEEPSPEED_API bool is_autocast_module(const std::string& class_name, const std::vector<std::string>& names);

/// Marks a parameter so that its gradient is reduced in `dtype`. The mark applies to engines made afterwards
/// with torch_autocast.
DEEPSPEED_API void set_autocast_dtype(const at::Tensor& param, at::ScalarType dtype);
/// Removes the mark of set_autocast_dtype(), if any.
DEEPSPEED_API void clear_autocast_dtype(const at::Tensor& param);
/// Returns the dtype of the parameter's mark, if it has one.
DEEPSPEED_API std::optional<at::ScalarType> find_autocast_dtype(const at::Tensor& param);
DEEPSPEED_API bool has_autocast_dtype(const at::Tensor& param);
/// Returns the dtype of the parameter's mark. Throws UsageError for an unmarked parameter.
DEEPSPEED_API at::ScalarType get_autocast_dtype(const at::Tensor& param);
/// Returns whether this process has marked parameters.
DEEPSPEED_API bool is_autocast_initialized();

}  // namespace deepspeed::precision
