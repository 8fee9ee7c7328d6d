// One pass over a gradient gives its sum of squares and whether every element is finite.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct GradStats {
  double sum_of_squares = 0.0;  // accumulated in double
  bool finite = true;           // no element is inf or nan (a sum that overflows does not count)
};

/// Returns the statistics and reads `gradient` once: any shape, contiguous, fp32, fp16 or bf16. On CPU the
/// result does not depend on the number of threads.
GradStats grad_stats(const at::Tensor& gradient);
/// Returns the sum of squares as a double without dimensions on the gradient's device, for which nothing
/// waits. It is finite exactly where all elements are.
at::Tensor sum_of_squares(const at::Tensor& gradient);

/// Says what a step whose gradients are not finite is multiplied by.
enum class NonFinite {
  kApplied,  // 1 / loss_scale: there is nothing to clip
  kSkipped,  // nan, by which adam() and update() write nothing
};

/// Returns what the gradients of a step are multiplied by, a double without dimensions: of the root of their
/// sum of squares, by the formula of precision::combined_gradient_scale(), where it is finite; clip 0: no
/// clipping. The sum, one double, lies on a CUDA device, where the result stays, and nothing waits for it.
at::Tensor gradient_scale(const at::Tensor& sum_of_squares, double loss_scale, double clip,
                          NonFinite non_finite = NonFinite::kApplied);

}  // namespace deepspeed::kernels
