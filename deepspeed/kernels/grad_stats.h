// Computes a gradient's sum of squares, and whether every element is finite, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct GradStats {
  double sum_of_squares = 0.0;  // accumulated in double
  bool finite = true;           // whether all elements are finite; for fp64, whether the sum is too
};

/// Returns both statistics in one pass. `gradient` is contiguous, of any shape, fp32, fp16, bf16 or fp64. On
/// CPU the result does not depend on the number of threads.
GradStats grad_stats(const at::Tensor& gradient);
/// Returns the sum of squares as a 0-dimensional double on the gradient's device. The host does not wait for
/// it. The sum is finite if and only if all elements are, except that fp64 elements above 1e154 overflow it.
at::Tensor sum_of_squares(const at::Tensor& gradient);

/// Says what gradient_scale() returns if the gradients are not finite.
enum class NonFinite {
  kApplied,  // 1 / loss_scale, since nothing can be clipped
  kSkipped,  // nan, which makes adam() and update() write nothing
};

/// Returns the factor for the gradients of a step, a 0-dimensional double. For a finite root of
/// `sum_of_squares` it follows the formula of precision::combined_gradient_scale(). clip 0 means no clipping.
/// The sum is one double on a CUDA device. The result stays there, and the host does not wait for it.
at::Tensor gradient_scale(const at::Tensor& sum_of_squares, double loss_scale, double clip,
                          NonFinite non_finite = NonFinite::kApplied);

}  // namespace deepspeed::kernels
