// Tells derivatives that a program asks for, as torch::autograd::grad() computes them, from backwards that
// train. What scales a backward for training leaves a derivative alone.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Whether the backward that runs adds to no parameter of an engine: what it computes is returned, or goes to
/// tensors that the program named. Is for nodes of a graph; false where none runs.
bool is_derivative();

/// In a derivative that keeps a graph (create_graph), has `wrap` called with each tensor that it returns,
/// whose result takes the tensor's place. One call a key counts; in others nothing happens.
void wrap_derivatives(const void* key, const std::function<at::Tensor(const at::Tensor&)>& wrap);

}  // namespace deepspeed
