// Arrays in device memory, as kernels take them.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/block_code.h"
#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Holds elements and their codes.
struct QuantizedArray {
  void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t numel = 0;
  uint8_t* codes = nullptr;  // at a multiple of 4
  float* scales = nullptr;   // one per block
  BlockCode code = BlockCode::kInt8;
};

/// Number of thread blocks, and partial sums, of the sum of squares. It is fixed so that the order of the sum
/// is.
inline constexpr int kSumOfSquaresBlocks = 1024;

}  // namespace deepspeed::kernels
