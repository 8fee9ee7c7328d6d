// Quantized blocks are launched with raw pointers, sizes and a stream.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "deepspeed/kernels/arguments/block_code.h"
#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Elements in the device's memory, and what stands for them there.
struct QuantizedArray {
  void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t numel = 0;
  uint8_t* codes = nullptr;  // at an address that 4 divides
  float* scales = nullptr;   // one a block
  BlockCode code = BlockCode::kInt8;
};

// Each returns the launch's error.
/// Writes codes and scales by the formula of kernels/block_quantization.h.
cudaError_t launch_quantize(const QuantizedArray& array, cudaStream_t stream);
/// Writes the values.
cudaError_t launch_dequantize(const QuantizedArray& array, cudaStream_t stream);
/// Adds what the codes stand for to the values, which are fp32.
cudaError_t launch_add_quantized(const QuantizedArray& array, cudaStream_t stream);

}  // namespace deepspeed::kernels
