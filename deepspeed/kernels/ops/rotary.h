// Rotary position embedding (Su et al. 2021): rotates pairs of a head's elements by an angle that grows with
// the position.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

enum class RotaryPairs {
  kHalves,      // element i pairs with i + rotary / 2, as in GPT-NeoX and Llama
  kNeighbours,  // element 2 i pairs with 2 i + 1, as in GPT-J
};

/// Returns the rotated heads. A pair (a, b) becomes (a cos - b sin, b cos + a sin). `input` is [batch, heads,
/// positions, dim], fp32, bf16, fp16 or fp64. Its first three dimensions may have any strides: a transposed
/// view of [batch, positions, heads, dim] is not copied, and the result is such a view too. `cos` and `sin`
/// are [positions, rotary / 2] or [batch, positions, rotary / 2], with rotary <= dim. They have input's
/// dtype, or fp32 next to a 16-bit input. Elements from `rotary` on stay unchanged. `backward` rotates in the
/// opposite direction, which gives the gradient. CPU and CUDA.
at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin,
                            RotaryPairs pairs, bool backward = false);

struct RotaryTables {
  at::Tensor cos, sin;  // [positions, rotary / 2]
};

/// Returns cos and sin of position * base^(-2 i / rotary), starting at `first_position`. They are computed in
/// fp64 and rounded to `dtype` once.
RotaryTables rotary_tables(int64_t positions, int64_t rotary, double base, const at::Device& device,
                           int64_t first_position = 0, at::ScalarType dtype = at::kFloat);

}  // namespace deepspeed::kernels
