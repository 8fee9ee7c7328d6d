// Finishes sums over rows: adds up a kernel's partial sums, which gives the gradients of parameters.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Holds a parameter and the partial sums of its gradient, fp32 (fp64) [parts, columns]. Both may be
/// undefined.
struct PartedGradient {
  at::Tensor parts, parameter;
};

/// Returns the sums over the parts in the parameters' dtype; undefined parts give undefined sums. Both
/// gradients have one shape and dtype, so that a GPU makes them in one launch.
std::array<at::Tensor, 2> sums_of_parts(const PartedGradient& first, const PartedGradient& second = {});

}  // namespace deepspeed::kernels
