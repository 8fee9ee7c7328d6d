// Loads and stores two float vectors at once, from arrays of fp32 or 16-bit elements. On AVX2 the pair's
// order is that of the 128-bit blocks: the first vector holds the elements 0-3 and 8-11, the second 4-7 and
// 12-15. A vector of 16-bit elements then widens to two of floats without shuffles across blocks, which cost
// more than the arithmetic. Other targets use the natural order. A target with one lane has no pairs.
// Included once per instruction set.
#if defined(DEEPSPEED_KERNELS_CPU_VECTOR_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_VECTOR_PAIR_INL_H_
#undef DEEPSPEED_KERNELS_CPU_VECTOR_PAIR_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_VECTOR_PAIR_INL_H_
#endif

#include <cstdint>

#include "deepspeed/kernels/cpu/half_precision-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
template <class D>
using PairOf = hn::Repartition<uint16_t, D>;

#if HWY_TARGET == HWY_AVX2

/// Returns the indices of the first vector's elements, counted from the pair's start.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> pair_indices(D) {
  const UintOf<D> du;
  const auto lane = hn::Iota(du, 0);
  return hn::Add(lane, hn::And(lane, hn::Set(du, 4U)));
}

/// Returns how much larger the same lane's index is in the second vector.
template <class D>
HWY_INLINE uint32_t pair_distance(D) {
  return 4;
}

template <class D>
HWY_INLINE void load_pair(D d, Float32, const float* HWY_RESTRICT from, hn::Vec<D>& first,
                          hn::Vec<D>& second) {
  const hn::Half<D> half;
  first = hn::Combine(d, hn::LoadU(half, from + 8), hn::LoadU(half, from));
  second = hn::Combine(d, hn::LoadU(half, from + 12), hn::LoadU(half, from + 4));
}

template <class D, class Type>
HWY_INLINE void load_pair(D d, Type type, const uint16_t* HWY_RESTRICT from, hn::Vec<D>& first,
                          hn::Vec<D>& second) {
  const UintOf<D> du;
  const PairOf<D> d16;
  const auto bits = hn::LoadU(d16, from);
  first = widen(d, type, hn::BitCast(du, hn::InterleaveLower(d16, bits, hn::Zero(d16))));
  second = widen(d, type, hn::BitCast(du, hn::InterleaveUpper(d16, bits, hn::Zero(d16))));
}

template <class D>
HWY_INLINE void load_pair(D d, BFloat16, const uint16_t* HWY_RESTRICT from, hn::Vec<D>& first,
                          hn::Vec<D>& second) {
  const PairOf<D> d16;
  const auto bits = hn::LoadU(d16, from);
  first = hn::BitCast(d, hn::InterleaveLower(d16, hn::Zero(d16), bits));
  second = hn::BitCast(d, hn::InterleaveUpper(d16, hn::Zero(d16), bits));
}

template <class D>
HWY_INLINE void store_pair(D, hn::Vec<D> first, hn::Vec<D> second, float* HWY_RESTRICT to) {
  const hn::Half<D> half;
  hn::StoreU(hn::LowerHalf(half, first), half, to);
  hn::StoreU(hn::LowerHalf(half, second), half, to + 4);
  hn::StoreU(hn::UpperHalf(half, first), half, to + 8);
  hn::StoreU(hn::UpperHalf(half, second), half, to + 12);
}

/// Returns the upper halves of a pair's lanes, in memory order. (The narrowing never saturates, because the
/// shift leaves 16-bit numbers.)
template <class D>
HWY_INLINE hn::Vec<PairOf<D>> upper_halves(D, hn::Vec<UintOf<D>> first, hn::Vec<UintOf<D>> second) {
  const hn::RebindToSigned<D> di;
  const hn::Repartition<int16_t, D> di16;
  const auto low = hn::ShiftRight<16>(hn::BitCast(di, first));
  const auto high = hn::ShiftRight<16>(hn::BitCast(di, second));
  return hn::BitCast(PairOf<D>(), hn::ReorderDemote2To(di16, low, high));
}

#else

template <class D>
HWY_INLINE hn::Vec<UintOf<D>> pair_indices(D) {
  return hn::Iota(UintOf<D>(), 0);
}

template <class D>
HWY_INLINE uint32_t pair_distance(D d) {
  return static_cast<uint32_t>(hn::Lanes(d));
}

template <class D, class Type>
HWY_INLINE void load_pair(D d, Type type, const typename Type::Bits* HWY_RESTRICT from, hn::Vec<D>& first,
                          hn::Vec<D>& second) {
  first = load(d, type, from);
  second = load(d, type, from + hn::Lanes(d));
}

template <class D>
HWY_INLINE void store_pair(D d, hn::Vec<D> first, hn::Vec<D> second, float* HWY_RESTRICT to) {
  hn::StoreU(first, d, to);
  hn::StoreU(second, d, to + hn::Lanes(d));
}

template <class D>
HWY_INLINE hn::Vec<PairOf<D>> upper_halves(D, hn::Vec<UintOf<D>> first, hn::Vec<UintOf<D>> second) {
  const PairOf<D> d16;
  return hn::ConcatOdd(d16, hn::BitCast(d16, second), hn::BitCast(d16, first));
}

#endif

template <class D>
HWY_INLINE hn::Vec<PairOf<D>> round_pair(D d, BFloat16 type, hn::Vec<D> first, hn::Vec<D> second) {
  return upper_halves(d, round_upper(d, type, first), round_upper(d, type, second));
}

template <class D>
HWY_INLINE hn::Vec<PairOf<D>> round_pair(D d, Float16 type, hn::Vec<D> first, hn::Vec<D> second) {
  return upper_halves(d, hn::ShiftLeft<16>(round_lower(d, type, first)),
                      hn::ShiftLeft<16>(round_lower(d, type, second)));
}
#endif

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
