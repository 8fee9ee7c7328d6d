// Products of a tensor and a number. In C++, tensor.mul_(number) rounds the number to the tensor's dtype
// first, unlike tensor.mul(number) and Python: a third is then 0.334 in bf16.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Multiplies a tensor in place: the bits are those of tensor.mul(factor). Does nothing for 1, and integers
/// take that alone. Is called with autograd off.
void scale(const at::Tensor& tensor, double factor);
/// Writes factor * values to `result`, of the same sizes and dtype, in one read and one write; otherwise like
/// scale().
void copy_scaled(const at::Tensor& result, const at::Tensor& values, double factor);

}  // namespace deepspeed
