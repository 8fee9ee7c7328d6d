// A tensor put somewhere else, multiplied.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Writes factor * values to `result`, of the same sizes and dtype: one read and one write, and the bits of
/// values.mul(factor). Integers take 1 alone. Is called with autograd off.
void copy_scaled(const at::Tensor& result, const at::Tensor& values, double factor);

}  // namespace deepspeed
