// Declares the launches of the CUDA kernels. They take raw pointers and sizes, so that a .cu file includes no
// torch. Each function launches its kernel over arrays on the current device and returns the launch's error.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "deepspeed/kernels/arguments/adam_arguments.h"
#include "deepspeed/kernels/arguments/device_arrays.h"
#include "deepspeed/kernels/arguments/op_arrays.h"
#include "deepspeed/kernels/arguments/update_rules.h"

namespace deepspeed::kernels {

cudaError_t launch_adam(const AdamArrays& arrays, const AdamConstants& constants, cudaStream_t stream);

cudaError_t launch_update(const UpdateArrays& arrays, const UpdateRule& rule, cudaStream_t stream);

/// Writes kSumOfSquaresBlocks partial sums of squares to `block_sums`, doubles on the device.
cudaError_t launch_sum_of_squares(const void* values, ElementType type, int64_t numel, double* block_sums,
                                  cudaStream_t stream);
/// Writes the gradients' scale by the formula of kernels/grad_stats.h. With `skips`, it is nan if the norm is
/// not finite.
cudaError_t launch_gradient_scale(const double* sum_of_squares, double loss_scale, double clip, bool skips,
                                  double* scale, cudaStream_t stream);

// The functions for signs work on blocks of 2048 elements.
/// Compresses by the formula of kernels/sign_compression.h.
cudaError_t launch_compress_signs(float* values, float* errors, uint8_t* bits, float* scales,
                                  int64_t num_blocks, cudaStream_t stream);
/// Adds to `sums` the numbers that the bits and their scales stand for.
cudaError_t launch_add_signs(const uint8_t* bits, const float* scales, float* sums, int64_t num_blocks,
                             cudaStream_t stream);

/// Writes codes and scales by the formula of kernels/block_quantization.h.
cudaError_t launch_quantize(const QuantizedArray& array, cudaStream_t stream);
/// Writes the values from codes and scales.
cudaError_t launch_dequantize(const QuantizedArray& array, cudaStream_t stream);
/// Adds the numbers that the codes stand for to the values, which are fp32.
cudaError_t launch_add_quantized(const QuantizedArray& array, cudaStream_t stream);

/// Launches the kernel of a fused operator. The operator's .cu file defines this for its type in OpArrays.
///
/// Operators compute the formulas of their headers in kernels/. Sums over rows use the same order on every
/// call, except that threads add to an embedding's row in any order.
template <class Arrays>
cudaError_t launch(const Arrays& arrays, cudaStream_t stream);

}  // namespace deepspeed::kernels
