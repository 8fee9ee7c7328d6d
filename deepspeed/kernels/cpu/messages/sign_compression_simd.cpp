#include <cmath>
#include <cstring>

#include "deepspeed/kernels/cpu/messages/message_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/messages/sign_compression_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Number of elements whose bits are collected before they are stored.
constexpr int64_t kWord = 64;

float compress_sign_block_of_target(float* HWY_RESTRICT values, float* HWY_RESTRICT errors,
                                    uint8_t* HWY_RESTRICT bits, int64_t numel) {
  const hn::CappedTag<float, kWord> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto squares = hn::Zero(d);
  for (int64_t i = 0; i < numel; i += lanes) {
    const auto x = hn::Add(hn::LoadU(d, values + i), hn::LoadU(d, errors + i));
    hn::StoreU(x, d, values + i);
    squares = hn::MulAdd(x, x, squares);
  }
  const float sum = hn::GetLane(hn::SumOfLanes(d, squares));
  const float scale = std::sqrt(sum / static_cast<float>(numel));
  const auto positive = hn::Set(d, scale), negative = hn::Set(d, -scale);
  for (int64_t word = 0; word < numel; word += kWord) {
    uint64_t word_bits = 0;
    for (int64_t i = 0; i < kWord; i += lanes) {
      const auto x = hn::LoadU(d, values + word + i);
      const auto is_positive = hn::Ge(x, hn::Zero(d));
      const auto sign = hn::IfThenElse(is_positive, positive, negative);
      hn::StoreU(hn::Sub(x, sign), d, errors + word + i);
      uint8_t mask[8] = {};
      hn::StoreMaskBits(d, is_positive, mask);
      uint64_t mask_bits = 0;
      std::memcpy(&mask_bits, mask, sizeof(mask_bits));
      mask_bits &= lanes < 64 ? (uint64_t{1} << static_cast<unsigned>(lanes)) - 1 : ~uint64_t{0};
      word_bits |= mask_bits << static_cast<unsigned>(i);
    }
    std::memcpy(bits + word / 8, &word_bits, sizeof(word_bits));
  }
  return scale;
}

void add_sign_block_of_target(const uint8_t* HWY_RESTRICT bits, float scale, float* HWY_RESTRICT sums,
                              int64_t numel) {
  const hn::CappedTag<float, kWord> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto positive = hn::Set(d, scale), negative = hn::Set(d, -scale);
  for (int64_t word = 0; word < numel; word += kWord) {
    uint64_t word_bits = 0;
    std::memcpy(&word_bits, bits + word / 8, sizeof(word_bits));
    for (int64_t i = 0; i < kWord; i += lanes) {
      const uint64_t mask_bits = word_bits >> static_cast<unsigned>(i);
      uint8_t mask[8];
      std::memcpy(mask, &mask_bits, sizeof(mask));
      const auto sign = hn::IfThenElse(hn::LoadMaskBits(d, mask), positive, negative);
      hn::StoreU(hn::Add(hn::LoadU(d, sums + word + i), sign), d, sums + word + i);
    }
  }
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(compress_sign_block_of_target);
HWY_EXPORT(add_sign_block_of_target);

float compress_sign_block(float* values, float* errors, uint8_t* bits, int64_t numel) {
  return HWY_DYNAMIC_DISPATCH(compress_sign_block_of_target)(values, errors, bits, numel);
}
void add_sign_block(const uint8_t* bits, float scale, float* sums, int64_t numel) {
  HWY_DYNAMIC_DISPATCH(add_sign_block_of_target)(bits, scale, sums, numel);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
