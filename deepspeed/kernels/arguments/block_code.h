// What stands for an element of a quantized block.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

/// Is a whole number of 4 or 8 bits, or an e4m3 float.
enum class BlockCode : uint8_t { kInt4, kInt8, kFloat8 };

/// Returns how many elements share a scale; the last block may have less. Four bits have room for few sizes,
/// so that large elements reach fewer neighbours.
constexpr int64_t quantization_block(BlockCode code) { return code == BlockCode::kInt4 ? 256 : 2048; }

constexpr int bits_of(BlockCode code) { return code == BlockCode::kInt4 ? 4 : 8; }

/// Returns the number to which a block's largest absolute value is scaled. Integers hold it with the minus
/// sign alone.
constexpr float largest_code(BlockCode code) {
  if (code == BlockCode::kFloat8) return 448.0F;
  return code == BlockCode::kInt4 ? 8.0F : 128.0F;
}

}  // namespace deepspeed::kernels
