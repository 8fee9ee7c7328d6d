// The counter-based random numbers of stochastic rounding. An element's bits are a function of the seed and
// of its index alone, so that they depend neither on threads nor on the width of the vectors. The CPU and
// CUDA kernels state the same function: key = rounding_key(seed, index >> 32), then with x = low 32 bits of
// index
//   x = x * kHashMultiplier1 + key.low;  x ^= x >> 15;  x *= kHashMultiplier2;  x ^= key.high
// The low 16 bits round the first moment, the high 16 the second.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

inline constexpr uint32_t kHashMultiplier1 = 0x7feb352dU;
inline constexpr uint32_t kHashMultiplier2 = 0x846ca68bU;

struct RoundingKey {
  uint32_t low = 0;
  uint32_t high = 0;
};

/// Mixes as splitmix64 does (Steele, Lea, Flood 2014).
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr RoundingKey rounding_key(uint64_t seed, uint64_t index_high) {
  const uint64_t key = mix_bits(mix_bits(seed) ^ index_high);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

}  // namespace deepspeed::kernels
