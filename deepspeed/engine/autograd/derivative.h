// Tells derivatives, as torch::autograd::grad() computes them, from backwards that train. What scales a
// training backward must leave a derivative unchanged.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Returns whether the running backward adds gradients to no parameter of an engine. The results of such a
/// backward go to its caller, or to tensors that the program named. Call it from a node's backward; outside
/// of one the result is false.
bool is_derivative();

/// Replaces each result of the running derivative by what `wrap` returns for it. Only with create_graph.
/// Later calls with the same key in one backward have no effect. Does nothing in other backwards.
void wrap_derivatives(const void* key, const std::function<at::Tensor(const at::Tensor&)>& wrap);

}  // namespace deepspeed
