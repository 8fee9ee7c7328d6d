// Quantized blocks are launched with raw pointers, sizes and a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "deepspeed/kernels/arguments/device_arrays.h"

namespace deepspeed::kernels {

// Each returns the launch's error.
/// Writes codes and scales by the formula of kernels/block_quantization.h.
cudaError_t launch_quantize(const QuantizedArray& array, cudaStream_t stream);
/// Writes the values.
cudaError_t launch_dequantize(const QuantizedArray& array, cudaStream_t stream);
/// Adds what the codes stand for to the values, which are fp32.
cudaError_t launch_add_quantized(const QuantizedArray& array, cudaStream_t stream);

}  // namespace deepspeed::kernels
