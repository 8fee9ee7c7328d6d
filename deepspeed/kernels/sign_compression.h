// Compresses numbers to 1 bit: the sign of each element, and the root mean square of each block of elements.
// The rounding error is kept and added to the next number (Tang et al., "1-bit Adam: Communication Efficient
// Large-Scale Training with Adam's Convergence Speed", 2021).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Number of elements that share a scale. Sizes of tensors must be multiples of it.
inline constexpr int64_t kSignBlock = 2048;

/// Returns the bytes of `numel` compressed elements: all bits, then an fp32 scale per block.
int64_t sign_bytes(int64_t numel);

/// Compresses x = values + errors. Writes the bits (1 for x >= 0, lowest bit of a byte first) and the scales
/// of the blocks, s = sqrt(mean(x^2)), into `packed`, (sign_bytes(n)) uint8. Writes x - s sign(x) into
/// `errors`. values, errors: (n) fp32, contiguous, on one device; `values` holds x afterwards.
void compress_signs(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& packed);

/// Decodes what compress_signs() wrote to `packed`, and adds it to `sums`, (n) fp32.
void add_signs(const at::Tensor& packed, const at::Tensor& sums);

}  // namespace deepspeed::kernels
