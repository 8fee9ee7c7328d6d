// Scales the gradient that enters a model's outputs, so that a direct `loss.backward()` gives the same
// gradients as `engine.backward(loss)`: both the division by the accumulation steps and the loss scale.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// The factor at the time of the backward, shared between the engine and the graphs of its outputs.
struct OutputScale {
  double factor = 1.0;
};

/// `output` behind a node that multiplies what flows back by `scale->factor`; the values are shared. Tensors
/// that need no gradient come back as they are.
at::Tensor scale_gradient_of(const at::Tensor& output, std::shared_ptr<const OutputScale> scale);

}  // namespace deepspeed
