// Arrays in device memory, as kernels take them.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/block_code.h"
#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Points to elements and their quantized codes in device memory.
struct QuantizedArray {
  void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t numel = 0;
  uint8_t* codes = nullptr;  // 4-byte aligned
  float* scales = nullptr;   // one per quantization_block()
  BlockCode code = BlockCode::kInt8;
};

/// Number of thread blocks that sum squares; each makes one partial sum. A fixed number fixes the order of
/// additions.
inline constexpr int kSumOfSquaresBlocks = 1024;

}  // namespace deepspeed::kernels
