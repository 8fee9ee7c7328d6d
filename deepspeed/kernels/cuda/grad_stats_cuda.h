// Squares are summed on CUDA. Without CUDA its twin in no_cuda/ throws.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Sums the squares of `values`: contiguous, fp32, fp16 or bf16, on a CUDA device. The result lies there as a
/// double without dimensions, for which nothing waits, with the same bits on every call.
at::Tensor sum_of_squares_cuda(const at::Tensor& values);

}  // namespace deepspeed::kernels
