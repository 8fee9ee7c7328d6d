// Products of a tensor and a number. In C++, tensor.mul_(number) rounds the number to the tensor's dtype
// first, unlike tensor.mul(number) and Python. A third is then 0.334 in bf16.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed {

/// Multiplies a tensor in place; the result has the bits of tensor.mul(factor). Does nothing for a factor of
/// 1, the only one allowed for integer tensors. Call it with autograd off.
void scale(const at::Tensor& tensor, double factor);
/// Writes factor * values to `result`, in one read and one write. Both tensors have the same sizes and dtype.
/// What scale() says of bits, integer tensors and autograd applies here too.
void copy_scaled(const at::Tensor& result, const at::Tensor& values, double factor);

}  // namespace deepspeed
