// Rounds Adam's moments to bf16 stochastically, with the random numbers of rounding_hash.h. Included once per
// instruction set.
#if defined(DEEPSPEED_KERNELS_CPU_STOCHASTIC_ROUNDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_STOCHASTIC_ROUNDING_INL_H_
#undef DEEPSPEED_KERNELS_CPU_STOCHASTIC_ROUNDING_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_STOCHASTIC_ROUNDING_INL_H_
#endif

#include <cstdint>

#include "deepspeed/kernels/arguments/rounding_hash.h"
#include "deepspeed/kernels/cpu/half_precision-inl.h"
#include "deepspeed/kernels/cpu/vector_pair-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Returns the hash of rounding_hash.h; `x` is the sum in its first line.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> hash_of(D, hn::Vec<UintOf<D>> x) {
  return hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(UintOf<D>(), kHashMultiplier2));
}

/// Returns 32 random bits for each element of `indices` (rounding_hash.h). `key` is a rounding_key().
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> random_bits(D d, uint32_t key, hn::Vec<UintOf<D>> indices) {
  const UintOf<D> du;
  const auto eighth = hn::AndNot(hn::Set(du, 3U), hn::ShiftRight<1>(indices));
  const auto counter = hn::Or(eighth, hn::And(indices, hn::Set(du, 3U)));
  const auto x = hash_of(d, hn::Add(hn::Mul(counter, hn::Set(du, kHashMultiplier1)), hn::Set(du, key)));
  const auto is_second = hn::TestBit(indices, hn::Set(du, 4U));
  return hn::IfThenElse(is_second, hn::RotateRight<8>(x), x);
}

/// Returns `random`, with 0 in lanes whose first moment `m` is nan. There a carry could make the nan a
/// number. (If only the second moment is nan, it was stored so, with a lower half of 0. Adding to that causes
/// no carry.)
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> keep_nan(D, hn::Vec<D> m, hn::Vec<UintOf<D>> random) {
  return hn::IfThenZeroElse(hn::RebindMask(UintOf<D>(), hn::IsNaN(m)), random);
}

/// Rounds a moment to bf16 in the upper half of each lane. Its 16 lower bits, added to random ones, decide
/// whether the result is the next number up. The mean is therefore unbiased.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> round_stochastically(D, hn::Vec<D> moment, hn::Vec<UintOf<D>> random16) {
  return hn::Add(hn::BitCast(UintOf<D>(), moment), random16);
}

/// Rounds and stores the moments of the elements starting at `index`.
template <class D>
HWY_INLINE void store_moments(D d, BFloat16, hn::Vec<D> m, hn::Vec<D> v, uint32_t key, uint32_t index,
                              uint16_t* HWY_RESTRICT m_to, uint16_t* HWY_RESTRICT v_to) {
  const UintOf<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto random = keep_nan(d, m, random_bits(d, key, hn::Iota(du, index)));
  const auto m_bits = round_stochastically(d, m, hn::And(random, hn::Set(du, 0xffffU)));
  const auto v_bits = round_stochastically(d, v, hn::ShiftRight<16>(random));
  hn::StoreU(narrow_to_u16(d, hn::ShiftRight<16>(m_bits)), d16, m_to);
  hn::StoreU(narrow_to_u16(d, hn::ShiftRight<16>(v_bits)), d16, v_to);
}

#if HWY_TARGET != HWY_SCALAR
// True if the two elements in a lane of a pair of vectors are always partners, i and i ^ 4 in
// rounding_hash.h, which share a hash.
#define DEEPSPEED_PAIRS_ARE_PARTNERS (HWY_TARGET == HWY_AVX2 || HWY_MAX_BYTES == 16)

/// Returns hash_of()'s arguments for the pair of vectors that starts at element `index`, a multiple of 8.
/// Each argument serves both elements of a lane, so only targets with DEEPSPEED_PAIRS_ARE_PARTNERS use the
/// result.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> first_counters(D, uint32_t key, uint32_t index) {
  const UintOf<D> du;
  return hn::Add(hn::Mul(hn::Iota(du, 0), hn::Set(du, kHashMultiplier1)),
                 hn::Set(du, index / 2 * kHashMultiplier1 + key));
}

#if DEEPSPEED_PAIRS_ARE_PARTNERS
/// Returns the bytes kLow and kHigh of each lane as 16 bits. Bytes count from the lowest, 0.
template <int kLow, int kHigh, class D>
HWY_INLINE hn::Vec<UintOf<D>> two_bytes(D, hn::Vec<UintOf<D>> x) {
  constexpr uint8_t kZero = 0x80;
  const hn::Repartition<uint8_t, D> du8;
  alignas(16) static constexpr uint8_t kBytes[16] = {
      kLow,     kHigh,     kZero, kZero, kLow + 4,  kHigh + 4,  kZero, kZero,
      kLow + 8, kHigh + 8, kZero, kZero, kLow + 12, kHigh + 12, kZero, kZero};
  const auto bytes = hn::TableLookupBytesOr0(hn::BitCast(du8, x), hn::LoadDup128(du8, kBytes));
  return hn::BitCast(UintOf<D>(), bytes);
}

/// Rounds and stores the moments of a pair of vectors. Advances `counters` to the next pair.
template <class D>
HWY_INLINE void store_moment_pairs(D d, uint32_t, uint32_t, hn::Vec<UintOf<D>>& counters, hn::Vec<D> m0,
                                   hn::Vec<D> v0, hn::Vec<D> m1, hn::Vec<D> v1, uint16_t* HWY_RESTRICT m_to,
                                   uint16_t* HWY_RESTRICT v_to) {
  const UintOf<D> du;
  const PairOf<D> d16;
  const auto x = hash_of(d, counters);
  counters = hn::Add(counters, hn::Set(du, static_cast<uint32_t>(hn::Lanes(d)) * kHashMultiplier1));
  const auto x0 = keep_nan(d, m0, x), x1 = keep_nan(d, m1, x);
  hn::StoreU(upper_halves(d, round_stochastically(d, m0, two_bytes<0, 1>(d, x0)),
                          round_stochastically(d, m1, two_bytes<1, 2>(d, x1))),
             d16, m_to);
  hn::StoreU(upper_halves(d, round_stochastically(d, v0, two_bytes<2, 3>(d, x0)),
                          round_stochastically(d, v1, two_bytes<3, 0>(d, x1))),
             d16, v_to);
}
#else
template <class D>
HWY_INLINE void store_moment_pairs(D d, uint32_t key, uint32_t index, hn::Vec<UintOf<D>>&, hn::Vec<D> m0,
                                   hn::Vec<D> v0, hn::Vec<D> m1, hn::Vec<D> v1, uint16_t* HWY_RESTRICT m_to,
                                   uint16_t* HWY_RESTRICT v_to) {
  const auto indices = hn::Add(pair_indices(d), hn::Set(UintOf<D>(), index));
  const auto next = hn::Add(indices, hn::Set(UintOf<D>(), pair_distance(d)));
  const auto x0 = keep_nan(d, m0, random_bits(d, key, indices));
  const auto x1 = keep_nan(d, m1, random_bits(d, key, next));
  const auto low = hn::Set(UintOf<D>(), 0xffffU);
  const PairOf<D> d16;
  hn::StoreU(upper_halves(d, round_stochastically(d, m0, hn::And(x0, low)),
                          round_stochastically(d, m1, hn::And(x1, low))),
             d16, m_to);
  hn::StoreU(upper_halves(d, round_stochastically(d, v0, hn::ShiftRight<16>(x0)),
                          round_stochastically(d, v1, hn::ShiftRight<16>(x1))),
             d16, v_to);
}
#endif
#endif

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
