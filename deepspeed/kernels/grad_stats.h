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

}  // namespace deepspeed::kernels
