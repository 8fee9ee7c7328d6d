// What stands for an element of a quantized block.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

/// Is a whole number of 4 or 8 bits, or an e4m3 float.
enum class BlockCode : uint8_t { kInt4, kInt8, kFloat8 };

constexpr int bits_of(BlockCode code) { return code == BlockCode::kInt4 ? 4 : 8; }

/// Returns the number to which a block's largest absolute value is scaled. Integers hold it with the minus
/// sign alone.
constexpr float largest_code(BlockCode code) {
  if (code == BlockCode::kFloat8) return 448.0F;
  return code == BlockCode::kInt4 ? 8.0F : 128.0F;
}

}  // namespace deepspeed::kernels
