// Arithmetic of whole numbers that several layers need.
#pragma once

#include <cstdint>

namespace deepspeed {

/// Returns the least multiple of `unit` that is not below `value`. Both are unsigned or not negative.
template <class Integer>
constexpr Integer round_up(Integer value, Integer unit) {
  return (value + unit - 1) / unit * unit;
}

/// Mixes bits like splitmix64 (Steele, Lea, Flood 2014): every input bit affects every output bit.
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace deepspeed
