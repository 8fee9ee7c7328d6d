// Scales the gradients that enter a model's outputs, so that a direct `loss.backward()` gives the same
// gradients as `engine.backward(loss)`: both the division by the accumulation steps and the loss scale.
//
// A backward that an engine began, by backward() or scale(), carries that engine's scale already. Other
// engines whose outputs it reaches, since they share the loss, exchange it for their own.
//
// A derivative (derivative.h) is not scaled: its result is the program's.
#pragma once

#include <atomic>
#include <memory>

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Says of backwards that have reached an engine's outputs how many have not ended, how many no engine has
/// begun, and whether one has failed, which leaves a part of its gradients.
struct BackwardOutcome {
  std::atomic<int> num_open = 0;
  std::atomic<int> num_direct = 0;
  std::atomic<bool> has_failed = false;
};

/// Of one engine, at the time of the backward; shared between it and the graphs of its outputs.
struct OutputScale {
  double loss_scale = 1.0;
  double accumulation_steps = 1.0;
  std::shared_ptr<BackwardOutcome> outcome = std::make_shared<BackwardOutcome>();
};

/// What the gradient of a loss is multiplied by, at the root of a backward.
struct RootScale {
  double loss_scale = 1.0;
  double divisor = 1.0;
  bool is_divided = true;  // false: each engine divides by its own accumulation steps
};

/// `output` behind a node that scales what flows back as `scale` says; the values are shared. Tensors that
/// need no gradient come back as they are.
at::Tensor scale_gradient_of(const at::Tensor& output, std::shared_ptr<OutputScale> scale);

/// `loss` behind a node that multiplies what flows back by loss_scale / divisor, and tells the engines' nodes
/// of the same backward. The values are shared.
at::Tensor with_root_scale(const at::Tensor& loss, const RootScale& scale);
/// `loss` times `loss_scale`, for a backward of the caller's own. A loss that was scaled already, for any
/// engine, comes back as it is.
at::Tensor scale_loss(const at::Tensor& loss, double loss_scale);
/// Whether the backward that runs, which calls a node, is one that an engine's backward() has begun.
bool is_in_backward_of_engine();
/// Whether scale_loss() made it.
bool is_scaled_loss(const at::Tensor& loss);

}  // namespace deepspeed
