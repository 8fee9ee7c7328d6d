// Numbers in 8 or 4 bits: blocks of elements share a scale. ZeRO++ sends weights and gradients as integers so
// (Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023); in
// fp8 (Micikevicius et al., "FP8 Formats for Deep Learning", 2022) small elements keep their digits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/block_code.h"

namespace deepspeed::kernels {

/// Returns the bytes of `numel` quantized elements: the codes, filled up to a multiple of 4, and a scale in
/// fp32 a block.
int64_t quantized_bytes(int64_t numel, BlockCode code);

/// Quantizes `values`, (n) fp32, fp16 or bf16, into `packed`, (quantized_bytes(n)) uint8 on the same device.
/// In 4 bits two codes share a byte, the first in its lower half. With m the largest absolute value of a
/// block and, for integers, s = 2^bits / 2m, the code of x is s x, rounded to the nearest (halves to even)
/// and clamped to [-2^(bits-1), 2^(bits-1) - 1], and 1 / s is stored: DeepSpeed's symmetric quantizer. So a
/// value comes back at most 1 / s = m / 2^(bits-1) away. For kFloat8, s = 448 / m, of which the code is the
/// nearest e4m3 number (halves to even): a value comes back at most |x| / 16 away, or m / (448 * 2^10) where
/// that is more. A block of zeros has the scale 1; one with an element that is not finite comes back as nan.
void quantize_blocks(const at::Tensor& values, const at::Tensor& packed, BlockCode code);

/// Multiplies what `packed`, of `numel` elements, stands for.
void scale_quantized(const at::Tensor& packed, int64_t numel, BlockCode code, double factor);

/// Writes what `packed` stands for into `values`, (n) fp32, fp16 or bf16.
void dequantize_blocks(const at::Tensor& packed, const at::Tensor& values, BlockCode code);

/// Adds what `packed` stands for to `sums`, (n) fp32.
void add_quantized(const at::Tensor& packed, const at::Tensor& sums, BlockCode code);

}  // namespace deepspeed::kernels
