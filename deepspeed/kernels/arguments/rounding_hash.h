// Counter-based random numbers for stochastic rounding. An element's bits depend only on the seed and its
// index, and not on threads or vector width. CPU and CUDA kernels implement the same function. With i = the
// low 32 bits of the index, the elements i and i ^ 4 share
//   x = (i >> 3 << 2 | i & 3) * kHashMultiplier1 + rounding_key(seed, index >> 32)
//   x ^= x >> 15;  x *= kHashMultiplier2
// and the one with i & 4 uses it rotated right by 8 bits. The low 16 bits round the first moment, the high 16
// the second. Each of these four numbers is uniform over 16 bits and has an upper byte of its own. Only lower
// bytes are shared, so their correlation is at most 2^-8.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

inline constexpr uint32_t kHashMultiplier1 = 0x7feb352dU;
inline constexpr uint32_t kHashMultiplier2 = 0x846ca68bU;

/// Mixes bits like splitmix64 (Steele, Lea, Flood 2014).
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr uint32_t rounding_key(uint64_t seed, uint64_t index_high) {
  return static_cast<uint32_t>(mix_bits(mix_bits(seed) ^ index_high) >> 32);
}

}  // namespace deepspeed::kernels
