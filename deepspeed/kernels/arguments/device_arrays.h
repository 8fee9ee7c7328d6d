// Arrays in a device's memory, as kernels take them.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/block_code.h"
#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Elements, and what stands for them.
struct QuantizedArray {
  void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t numel = 0;
  uint8_t* codes = nullptr;  // at an address that 4 divides
  float* scales = nullptr;   // one a block
  BlockCode code = BlockCode::kInt8;
};

/// The kernel of the sum of squares writes one sum a block, always of this many blocks, so that the order of
/// the sum is fixed.
inline constexpr int kSumOfSquaresBlocks = 1024;

}  // namespace deepspeed::kernels
