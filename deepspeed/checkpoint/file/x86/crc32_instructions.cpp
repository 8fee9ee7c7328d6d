// Follows V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel
// 2009, for the bit-reflected polynomial of zip. Two products with powers of x modulo the polynomial move 128
// bits onto later bits. Four such streams run side by side.
#include "deepspeed/checkpoint/file/crc32_instructions.h"

#include <immintrin.h>

#define DEEPSPEED_CRC_TARGET __attribute__((target("pclmul,sse4.1")))

namespace deepspeed::checkpoint {
namespace {

DEEPSPEED_CRC_TARGET inline __m128i load(const uint8_t* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

/// Moves `value` forward by the distance of `powers` and adds it to the bits `there`.
DEEPSPEED_CRC_TARGET inline __m128i fold(__m128i value, __m128i powers, __m128i there) {
  const __m128i low = _mm_clmulepi64_si128(value, powers, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/// Returns the remainder of 128 bits, by Barrett reduction.
DEEPSPEED_CRC_TARGET inline uint32_t reduce(__m128i value, __m128i by_16_bytes) {
  const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
  value = _mm_xor_si128(_mm_srli_si128(value, 8), _mm_clmulepi64_si128(value, by_16_bytes, 0x10));
  const __m128i by_4_bytes = _mm_set_epi64x(0, 0x163cd6124);
  value = _mm_xor_si128(_mm_srli_si128(value, 4),
                        _mm_clmulepi64_si128(_mm_and_si128(value, low_words), by_4_bytes, 0x00));
  const __m128i polynomial_and_inverse = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(value, low_words), polynomial_and_inverse, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), polynomial_and_inverse, 0x00);
  return uint32_t(_mm_extract_epi32(_mm_xor_si128(value, quotient), 1));
}

}  // namespace

bool has_crc32_instructions() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }

DEEPSPEED_CRC_TARGET uint32_t crc32_by_instructions(uint32_t state, const uint8_t* bytes, size_t size) {
  const __m128i by_64_bytes = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_16_bytes = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i a = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128(int(state)));
  __m128i b = load(bytes + 16), c = load(bytes + 32), d = load(bytes + 48);
  for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64) {
    a = fold(a, by_64_bytes, load(bytes));
    b = fold(b, by_64_bytes, load(bytes + 16));
    c = fold(c, by_64_bytes, load(bytes + 32));
    d = fold(d, by_64_bytes, load(bytes + 48));
  }
  a = fold(fold(fold(a, by_16_bytes, b), by_16_bytes, c), by_16_bytes, d);
  for (; size >= 16; bytes += 16, size -= 16) a = fold(a, by_16_bytes, load(bytes));
  return reduce(a, by_16_bytes);
}

}  // namespace deepspeed::checkpoint
