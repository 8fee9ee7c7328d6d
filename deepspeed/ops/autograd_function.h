// What the autograd functions of this folder share.
#pragma once

#include <initializer_list>
#include <optional>
#include <source_location>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/base/error.h"

namespace deepspeed::ops {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

inline at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

inline std::optional<at::Tensor> or_none(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// An argument of an operator that it cannot do without.
struct NeededTensor {
  const char* name;
  const at::Tensor& tensor;
};

/// Throws UsageError where a tensor is undefined, before c10 does, which knows neither operator nor argument.
inline void require_defined(const char* op, std::initializer_list<NeededTensor> arguments,
                            const std::source_location& where = std::source_location::current()) {
  for (const NeededTensor& argument : arguments) {
    if (argument.tensor.defined()) continue;
    raise_at<UsageError>(where, op, ": ", argument.name, " is undefined, expected a tensor");
  }
}

/// Throws UsageError where a backward is to be differentiated itself: the kernels have no second derivative.
inline void refuse_create_graph(const char* op) {
  if (!c10::GradMode::is_enabled()) return;
  raise<UsageError>("the backward of ", op,
                    " ran with create_graph, but has no derivative itself; run it without, or "
                    "use torch's own operators there");
}

/// Says whether the gradient of a tensor is wanted.
inline bool wants_gradient(const std::optional<at::Tensor>& tensor) {
  return c10::GradMode::is_enabled() && tensor && tensor->defined() && tensor->requires_grad();
}

inline bool is_autocast(const at::Tensor& tensor) {
  return at::autocast::is_autocast_enabled(tensor.device().type());
}

}  // namespace deepspeed::ops
