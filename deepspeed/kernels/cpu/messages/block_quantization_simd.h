// Plain functions hide the vector code of block_quantization, and pick the best instruction set at run time.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/block_code.h"
#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Keeps 1 / scale a normal number.
inline constexpr float kLargestScale = 0x1p126F;

/// One block: its elements in memory, its codes, and the place of its scale.
struct QuantizedBlock {
  void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  uint8_t* codes = nullptr;
  float* scale = nullptr;
  int64_t numel = 0;
  BlockCode code = BlockCode::kInt8;
};

/// Reads the values, and writes codes and scale by the formula of kernels/block_quantization.h.
void quantize_block_simd(const QuantizedBlock& block);
/// Reads codes and scale, writes the values.
void dequantize_block_simd(const QuantizedBlock& block);

}  // namespace deepspeed::kernels
