// Compressed signs are launched with raw pointers, sizes and a stream.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace deepspeed::kernels {

// Blocks have 2048 elements. Each returns the launch's error.
/// Compresses by the formula of kernels/sign_compression.h.
cudaError_t launch_compress_signs(float* values, float* errors, uint8_t* bits, float* scales,
                                  int64_t num_blocks, cudaStream_t stream);
/// Adds what the bits and their scales stand for.
cudaError_t launch_add_signs(const uint8_t* bits, const float* scales, float* sums, int64_t num_blocks,
                             cudaStream_t stream);

}  // namespace deepspeed::kernels
