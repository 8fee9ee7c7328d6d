// Helpers that the autograd functions of this layer share.
#pragma once

#include <initializer_list>
#include <optional>
#include <source_location>
#include <string>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/base/error.h"

namespace deepspeed::ops {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

inline at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

/// Names an argument that an operator needs.
struct NeededTensor {
  const char* name;
  const at::Tensor& tensor;
};

/// Throws UsageError if a tensor is undefined. torch's own error would not name the operator `op` and the
/// argument.
inline void require_defined(const char* op, std::initializer_list<NeededTensor> arguments,
                            const std::source_location& where = std::source_location::current()) {
  for (const NeededTensor& argument : arguments) {
    if (argument.tensor.defined()) continue;
    raise_at<UsageError>(where, op, ": ", argument.name, " is undefined, expected a tensor");
  }
}

/// Throws NotSupportedError if a backward runs with create_graph: kernels have no second derivative.
inline void refuse_create_graph(const std::string& op,
                                const std::source_location& where = std::source_location::current()) {
  if (!c10::GradMode::is_enabled()) return;
  raise_at<NotSupportedError>(where, op,
                              " has no second derivative, but its backward ran with create_graph; run it "
                              "without, or use torch's own operators there");
}

/// Returns whether autograd will compute a tensor's gradient; false without a tensor.
inline bool wants_gradient(const std::optional<at::Tensor>& tensor) {
  return c10::GradMode::is_enabled() && tensor && tensor->defined() && tensor->requires_grad();
}

}  // namespace deepspeed::ops
