// Blocks are quantized on CUDA. Without CUDA the twins in no_cuda/ throw.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/block_code.h"

namespace deepspeed::kernels {

// values: (n), fp32, fp16 or bf16; codes: uint8; scales: fp32, one a block: contiguous on one CUDA device.
// All are of the formula of kernels/block_quantization.h, with the bits of the CPU.
void quantize_blocks_cuda(const at::Tensor& values, const at::Tensor& codes, const at::Tensor& scales,
                          BlockCode code);
void dequantize_blocks_cuda(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& values,
                            BlockCode code);
/// Adds what the codes stand for to `sums`, (n) fp32.
void add_quantized_cuda(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& sums,
                        BlockCode code);

}  // namespace deepspeed::kernels
