// Joins and splits vectors of masters with two 16-bit halves (split_master.h). Included once per instruction
// set.
#if defined(DEEPSPEED_KERNELS_CPU_SPLIT_MASTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_SPLIT_MASTER_INL_H_
#undef DEEPSPEED_KERNELS_CPU_SPLIT_MASTER_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_SPLIT_MASTER_INL_H_
#endif

#include <cstdint>

#include "deepspeed/kernels/cpu/half_precision-inl.h"
#include "deepspeed/kernels/cpu/vector_pair-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Joins masters from halves in each lane's upper 16 bits; the lower bits are 0.
template <class D>
HWY_INLINE hn::Vec<D> join_halves(D d, hn::Vec<D> upper, hn::Vec<D> lower) {
  const hn::RebindToSigned<D> di;
  const UintOf<D> du;
  const auto weight = hn::BitCast(du, upper);
  const auto joined = hn::Add(weight, hn::BitCast(du, hn::ShiftRight<16>(hn::BitCast(di, lower))));
  // The sign differs if a zero has a negative lower half, which no split produces.
  const auto no_split = hn::Lt(hn::BitCast(di, hn::Xor(joined, weight)), hn::Zero(di));
  return hn::IfThenElse(hn::RebindMask(d, no_split), upper, hn::BitCast(d, joined));
}

/// Returns the masters' bits for splitting, with all nans replaced by one kind.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> bits_to_split(D, hn::Vec<D> masters) {
  const UintOf<D> du;
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(masters));
  return hn::IfThenElse(is_nan, hn::Set(du, 0x7fc00000U), hn::BitCast(du, masters));
}

/// Rounds the masters' bits to bf16, halves away from zero. The weight is in each lane's upper 16 bits, and
/// the caller cuts off the lower bits.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> round_half_away(D, hn::Vec<UintOf<D>> bits) {
  return hn::Add(bits, hn::Set(UintOf<D>(), 0x8000U));
}

template <class D>
HWY_INLINE hn::Vec<D> load_split(D d, const uint16_t* HWY_RESTRICT upper,
                                 const uint16_t* HWY_RESTRICT lower) {
  return join_halves(d, load(d, BFloat16(), upper), load(d, BFloat16(), lower));
}

template <class D>
HWY_INLINE void store_split(D d, hn::Vec<D> masters, uint16_t* HWY_RESTRICT upper,
                            uint16_t* HWY_RESTRICT lower) {
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = bits_to_split(d, masters);
  hn::StoreU(narrow_to_u16(d, hn::ShiftRight<16>(round_half_away(d, bits))), d16, upper);
  hn::StoreU(narrow_to_u16(d, hn::And(bits, hn::Set(UintOf<D>(), 0xffffU))), d16, lower);
}

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE void load_split_pair(D d, const uint16_t* HWY_RESTRICT upper, const uint16_t* HWY_RESTRICT lower,
                                hn::Vec<D>& first, hn::Vec<D>& second) {
  auto first_lower = hn::Zero(d), second_lower = hn::Zero(d);
  load_pair(d, BFloat16(), upper, first, second);
  load_pair(d, BFloat16(), lower, first_lower, second_lower);
  first = join_halves(d, first, first_lower);
  second = join_halves(d, second, second_lower);
}

template <class D>
HWY_INLINE void store_split_pair(D d, hn::Vec<D> first, hn::Vec<D> second, uint16_t* HWY_RESTRICT upper,
                                 uint16_t* HWY_RESTRICT lower) {
  const PairOf<D> d16;
  const auto bits0 = bits_to_split(d, first), bits1 = bits_to_split(d, second);
  hn::StoreU(upper_halves(d, round_half_away(d, bits0), round_half_away(d, bits1)), d16, upper);
  hn::StoreU(upper_halves(d, hn::ShiftLeft<16>(bits0), hn::ShiftLeft<16>(bits1)), d16, lower);
}
#endif

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
