// Numbers in 1 bit: of each element its sign, of each block of elements their root mean square. What that
// takes from a number is kept and added to the next one (Tang et al., "1-bit Adam: Communication Efficient
// Large-Scale Training with Adam's Convergence Speed", 2021).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

/// Elements that share a scale; sizes are multiples of it.
inline constexpr int64_t kSignBlock = 2048;

/// Returns the bytes of `numel` compressed elements: a bit each, and a scale in fp32 a block.
int64_t sign_bytes(int64_t numel);

/// Compresses x = values + errors: writes the bits (1 for x >= 0, from a byte's lowest on) and the scales
/// s = sqrt(mean(x^2)) of blocks into `packed`, (sign_bytes(n)) uint8, and x - s sign(x) into `errors`.
/// values, errors: (n) fp32, contiguous, on one device; `values` holds x afterwards.
void compress_signs(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& packed);

/// Adds what `packed` stands for, s sign(x), to `sums`, (n) fp32.
void add_signs(const at::Tensor& packed, const at::Tensor& sums);

}  // namespace deepspeed::kernels
