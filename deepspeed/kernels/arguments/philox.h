// Random numbers as a function of a seed, an offset and an index: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw
// 2011, "Parallel random numbers: as easy as 1, 2, 3"). No state is kept. A mask can be recomputed from its
// seed and offset, bit for bit on every device and for any number of threads.
//
// Element i of a call uses word i % 4 of the block whose counter is (i / 4, offset) and whose key is the
// seed, each as two words, the lower one first.
#pragma once

#include <cstdint>

namespace deepspeed::kernels {

/// Identifies one call's random numbers. Calls with different offsets never share any.
struct Philox {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xd2511f53U, kPhiloxMultiplier1 = 0xcd9e8d57U;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9e3779b9U, kPhiloxWeyl1 = 0xbb67ae85U;
inline constexpr int kPhiloxRounds = 10;

/// Returns the smallest random word that keeps an element, for drop probability `ratio`. A ratio of 1 gives
/// 2^32, which no word reaches.
constexpr uint64_t dropout_threshold(double ratio) {
  return static_cast<uint64_t>(ratio * 4294967296.0 + 0.5);
}

}  // namespace deepspeed::kernels
