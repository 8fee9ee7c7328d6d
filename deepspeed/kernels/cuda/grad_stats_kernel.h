// The sum of squares is launched with raw pointers, sizes and a stream.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "deepspeed/kernels/arguments/device_arrays.h"

namespace deepspeed::kernels {

/// Launches the kernel. `block_sums`: kSumOfSquaresBlocks doubles on the device. Returns the launch's error.
cudaError_t launch_sum_of_squares(const void* values, ElementType type, int64_t numel, double* block_sums,
                                  cudaStream_t stream);

}  // namespace deepspeed::kernels
