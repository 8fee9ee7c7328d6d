#include "deepspeed/zero/storage/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace deepspeed::zero {
namespace {

constexpr int64_t kElementsAtOnce = 4 << 20;

// Odd constants with well mixed bits: 2^64 over the golden ratio, and the prime of the 64-bit FNV hash.
uint64_t mix(uint64_t hash, uint64_t word) {
  return std::rotl((hash ^ word) * 0x9E3779B97F4A7C15U, 29) + 0x100000001B3U;
}

uint64_t hash_bytes(uint64_t hash, const char* bytes, size_t count) {
  for (; count > 0; bytes += std::min(count, sizeof(uint64_t)), count -= std::min(count, sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, std::min(count, sizeof(word)));
    hash = mix(hash, word);
  }
  return hash;
}

}  // namespace

uint64_t fingerprint(const at::Tensor& values) {
  const at::Tensor flat = values.as_strided({values.numel()}, {1});
  uint64_t hash = 0;
  for (int64_t begin = 0; begin < flat.numel(); begin += kElementsAtOnce) {
    const at::Tensor piece = flat.narrow(0, begin, std::min(kElementsAtOnce, flat.numel() - begin)).cpu();
    hash = hash_bytes(hash, static_cast<const char*>(piece.const_data_ptr()), piece.nbytes());
  }
  return hash;
}

}  // namespace deepspeed::zero
