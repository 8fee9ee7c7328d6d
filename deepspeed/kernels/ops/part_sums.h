// The ends of sums over rows: parameters' gradients from the sums of parts that a kernel has made.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// A parameter's gradient in parts, wide [parts, columns], and the parameter; both are undefined where there
/// is none.
struct PartedGradient {
  at::Tensor parts, parameter;
};

/// Returns the sums over the parts in the parameters' dtype, undefined where there is none. Both have one
/// shape and dtype: a GPU makes them in one launch.
std::array<at::Tensor, 2> sums_of_parts(const PartedGradient& first, const PartedGradient& second = {});

}  // namespace deepspeed::kernels
