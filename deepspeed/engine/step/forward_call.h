// A forward call in the form that a graph takes (ForwardScope::run_graph()): lists of tensors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Holds the arguments of a forward.
struct ForwardCall {
  std::vector<at::Tensor> tensors;  // in argument order
  std::string rest;                 // all other arguments as text; a different text gets its own graph
};

/// Holds what a forward returns.
struct ForwardResult {
  std::vector<at::Tensor> tensors;
  std::shared_ptr<const void> frame;  // the result object of the caller's type, which receives the tensors
};

/// Runs the model's forward on these tensors instead of the call's.
using RunForward = std::function<ForwardResult(const std::vector<at::Tensor>& tensors)>;

}  // namespace deepspeed
