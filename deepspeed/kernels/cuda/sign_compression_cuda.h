// Signs are compressed on CUDA. Without CUDA the twins in no_cuda/ throw.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

// values, errors, sums: (n) fp32, in blocks of 2048; bits: (n / 8) uint8; scales: fp32, one a block:
// contiguous on one CUDA device, by the formula of kernels/sign_compression.h.
void compress_signs_cuda(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& bits,
                         const at::Tensor& scales);
void add_signs_cuda(const at::Tensor& bits, const at::Tensor& scales, const at::Tensor& sums);

}  // namespace deepspeed::kernels
