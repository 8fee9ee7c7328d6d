// Numbers in 8 or 4 bits: blocks of elements share a scale. ZeRO++ sends weights and gradients so (Wang et
// al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Elements that share a scale; the last block may have less.
inline constexpr int64_t kQuantizationBlock = 2048;

/// Returns the bytes of `numel` quantized elements: the codes, filled up to a multiple of 4, and a scale in
/// fp32 a block.
int64_t quantized_bytes(int64_t numel, int bits);

/// Quantizes `values`, (n) fp32, fp16 or bf16, into `packed`, (quantized_bytes(n)) uint8 on the same device.
/// bits: 8, or 4, two codes a byte with the first in its lower half. With m the largest absolute value of a
/// block and s = 2^bits / 2m, the code of x is s x, rounded to the nearest (halves to even) and clamped to
/// [-2^(bits-1), 2^(bits-1) - 1], and 1 / s is stored: DeepSpeed's symmetric quantizer. So a value comes back
/// at most 1 / s = m / 2^(bits-1) away. A block of zeros has the scale 1; one with an element that is not
/// finite comes back as nan.
void quantize_blocks(const at::Tensor& values, const at::Tensor& packed, int bits);

/// Multiplies what `packed`, of `numel` elements, stands for.
void scale_quantized(const at::Tensor& packed, int64_t numel, int bits, double factor);

/// Writes what `packed` stands for into `values`, (n) fp32, fp16 or bf16.
void dequantize_blocks(const at::Tensor& packed, const at::Tensor& values, int bits);

}  // namespace deepspeed::kernels
