// Numbers in 8 or 4 bits; blocks of elements share a scale. ZeRO++ sends weights and gradients as such
// integers (Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training",
// 2023). In fp8 (Micikevicius et al., "FP8 Formats for Deep Learning", 2022) small elements keep their
// precision.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/arguments/block_code.h"

namespace deepspeed::kernels {

/// Returns the bytes of `numel` quantized elements. All codes come first, padded to a multiple of 4 bytes,
/// then an fp32 scale per block.
int64_t quantized_bytes(int64_t numel, BlockCode code);

/// Quantizes `values`, (n) fp32, fp16 or bf16, into `packed`, (quantized_bytes(n)) uint8 on the same device.
/// Two 4-bit codes share a byte, the first in its lower half. Let m be a block's largest absolute value and,
/// for integers, s = 2^bits / 2m. The code of x is s x, rounded to nearest (halves to even) and clamped to
/// [-2^(bits-1), 2^(bits-1) - 1], and 1 / s is stored: DeepSpeed's symmetric quantizer. The error is at most
/// 1 / s = m / 2^(bits-1). For kFloat8, s = 448 / m and the code is the nearest e4m3 number (halves to even).
/// The error is then at most |x| / 16, or m / (448 * 2^10) if that is larger. A block of zeros has the scale
/// 1. A block with an element that is not finite is read back as nan.
void quantize_blocks(const at::Tensor& values, const at::Tensor& packed, BlockCode code);

/// Multiplies the `numel` values that `packed` encodes by `factor`, in place.
void scale_quantized(const at::Tensor& packed, int64_t numel, BlockCode code, double factor);

/// Decodes `packed` into `values`, (n) fp32, fp16 or bf16.
void dequantize_blocks(const at::Tensor& packed, const at::Tensor& values, BlockCode code);

/// Decodes `packed` and adds the values to `sums`, (n) fp32.
void add_quantized(const at::Tensor& packed, const at::Tensor& sums, BlockCode code);

}  // namespace deepspeed::kernels
