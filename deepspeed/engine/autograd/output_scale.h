// Scales the gradients that enter a model's outputs by the loss scale and divides them by the accumulation
// steps. A direct `loss.backward()` then gives the same gradients as `engine.backward(loss)`.
//
// A backward started by an engine's backward() or scale() already carries that engine's scale. Other engines
// that share the loss exchange that scale for their own at their outputs.
//
// A derivative (derivative.h) is not scaled: its result belongs to the program.
#pragma once

#include <atomic>
#include <memory>

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Counts the backwards that have reached an engine's outputs. num_open: not yet ended. num_direct: not
/// started by an engine. has_failed: one failed and left partial gradients.
struct BackwardOutcome {
  std::atomic<int> num_open = 0;
  std::atomic<int> num_direct = 0;
  std::atomic<bool> has_failed = false;
};

/// Holds one engine's scale at the time of the backward. The engine and the graphs of its outputs share it.
struct OutputScale {
  double loss_scale = 1.0;
  double accumulation_steps = 1.0;
  std::shared_ptr<BackwardOutcome> outcome = std::make_shared<BackwardOutcome>();
};

/// Describes the factor that a loss's gradient gets at the root of a backward.
struct RootScale {
  double loss_scale = 1.0;
  double divisor = 1.0;
  bool is_divided = true;  // false: each engine divides by its own accumulation steps
};

/// Returns `output` through an autograd node that scales its gradient by `scale`. The result shares memory
/// with `output`. A tensor that needs no gradient is returned unchanged.
at::Tensor scale_gradient_of(const at::Tensor& output, std::shared_ptr<OutputScale> scale);

/// Returns `loss` through an autograd node that multiplies its gradient by loss_scale / divisor. Output nodes
/// of other engines then replace this scale by their own. The result shares memory with `loss`.
at::Tensor with_root_scale(const at::Tensor& loss, const RootScale& scale);
/// Returns `loss` times `loss_scale`, for a backward that the caller runs. A loss already scaled for any
/// engine is returned unchanged.
at::Tensor scale_loss(const at::Tensor& loss, double loss_scale);
/// Returns whether an engine's backward() started the running backward. Call it from an autograd node's
/// backward.
bool is_in_backward_of_engine();
/// Returns whether `loss` comes from scale_loss().
bool is_scaled_loss(const at::Tensor& loss);

}  // namespace deepspeed
