// Codes for the elements of a quantized block.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

/// Names the codes of elements: whole numbers of 4 or 8 bits, or e4m3 floats.
enum class BlockCode : uint8_t { kInt4, kInt8, kFloat8 };

/// Returns how many elements share a scale; the last block may be smaller. Blocks of 4-bit codes are small,
/// because a large element takes precision from all others in its block.
constexpr int64_t quantization_block(BlockCode code) { return code == BlockCode::kInt4 ? 256 : 2048; }

constexpr int bits_of(BlockCode code) { return code == BlockCode::kInt4 ? 4 : 8; }

/// Returns the number to which a block's largest absolute value is scaled. Integer codes reach it only as -8
/// and -128.
constexpr float largest_code(BlockCode code) {
  if (code == BlockCode::kFloat8) return 448.0F;
  return code == BlockCode::kInt4 ? 8.0F : 128.0F;
}

}  // namespace deepspeed::kernels
