// Plain functions hide the vector code of sign_compression, and pick the best instruction set at run time.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

/// Compresses a block by the formula of kernels/sign_compression.h; returns its scale. numel: a multiple of
/// 64.
float compress_sign_block(float* values, float* errors, uint8_t* bits, int64_t numel);
/// Adds what the bits and their scale stand for.
void add_sign_block(const uint8_t* bits, float scale, float* sums, int64_t numel);

}  // namespace deepspeed::kernels
