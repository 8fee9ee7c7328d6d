// CPU kernels for messages between ranks: sums over ranks, copies past the caches, and low-bit numbers. Links
// no torch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "deepspeed/kernels/arguments/block_code.h"
#include "deepspeed/kernels/arguments/combine_arguments.h"
#include "deepspeed/kernels/arguments/element_type.h"

namespace deepspeed::kernels {

/// Implements combine() for several terms or a factor. can_combine() must be true. `stream`: store past the
/// caches.
void combine_simd(CombineOp op, CombineType type, void* to, const void* const* terms, int64_t num_terms,
                  int64_t numel, bool stream, double factor);

/// Copies between ranges that do not overlap, past the caches.
void copy_past_caches_simd(void* to, const void* from, size_t bytes);

/// Compresses a block by the formula of kernels/sign_compression.h, and returns its scale. numel: elements of
/// the block, a multiple of 64.
float compress_sign_block(float* values, float* errors, uint8_t* bits, int64_t numel);
/// Decodes the bits of a block, each to `scale` or -`scale`, and adds these values to `sums`.
void add_sign_block(const uint8_t* bits, float scale, float* sums, int64_t numel);

/// Largest scale of a block, chosen so that 1 / scale is not subnormal.
inline constexpr float kLargestScale = 0x1p126F;

/// Describes one block: its elements in memory, its codes, and the address of its scale.
struct QuantizedBlock {
  void* values = nullptr;
  ElementType type = ElementType::kFloat32;
  uint8_t* codes = nullptr;
  float* scale = nullptr;
  int64_t numel = 0;
  BlockCode code = BlockCode::kInt8;
};

/// Reads the values; writes codes and scale by the formula of kernels/block_quantization.h.
void quantize_block_simd(const QuantizedBlock& block);
/// Reads codes and scale, writes the values.
void dequantize_block_simd(const QuantizedBlock& block);

}  // namespace deepspeed::kernels
