// Stochastic rounding takes its random numbers from a counter. An element's bits are a function of the seed
// and of its index alone, so that they depend neither on threads nor on the width of the vectors. The CPU and
// CUDA kernels state the same function: with i = the low 32 bits of the index, the elements i and i ^ 4 share
//   x = (i >> 3 << 2 | i & 3) * kHashMultiplier1 + rounding_key(seed, index >> 32);  x ^= x >> 15;  x *=
//   kHashMultiplier2
// of which the one with i & 4 takes the rotation by 8 bits to the right. The low 16 bits round the first
// moment, the high 16 the second. Each of these four numbers is uniform over 16 bits and has an upper byte of
// its own; what it shares with another is its lower byte, so that their correlation is at most 2^-8.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

inline constexpr uint32_t kHashMultiplier1 = 0x7feb352dU;
inline constexpr uint32_t kHashMultiplier2 = 0x846ca68bU;

/// Mixes as splitmix64 does (Steele, Lea, Flood 2014).
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
