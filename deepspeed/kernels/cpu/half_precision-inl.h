// Converts vectors between fp32 and the 16-bit types. It rounds to nearest even as torch does. It works on
// the numbers' bits, so that every instruction set gives the same result (Highway's own conversions truncate
// bf16). Included once per instruction set.
#if defined(DEEPSPEED_KERNELS_CPU_HALF_PRECISION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_HALF_PRECISION_INL_H_
#undef DEEPSPEED_KERNELS_CPU_HALF_PRECISION_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_HALF_PRECISION_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// These tags name the stored types; Bits is the type in memory.
struct Float32 {
  using Bits = float;
};
struct Float64 {
  using Bits = double;
};
struct Float16 {
  using Bits = uint16_t;
};
struct BFloat16 {
  using Bits = uint16_t;
};

template <class D>  // D: tag of float vectors
using UintOf = hn::RebindToUnsigned<D>;

template <class D>
HWY_INLINE hn::Vec<UintOf<D>> load_u16(D, const uint16_t* HWY_RESTRICT from) {
  return hn::PromoteTo(UintOf<D>(), hn::LoadU(hn::Rebind<uint16_t, D>(), from));
}

template <class D>  // every lane is below 2^16
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow_to_u16(D, hn::Vec<UintOf<D>> bits) {
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), bits));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, Float32, const float* HWY_RESTRICT from) {
  return hn::LoadU(d, from);
}

template <class D>  // D: tag of double vectors
HWY_INLINE hn::Vec<D> load(D d, Float64, const double* HWY_RESTRICT from) {
  return hn::LoadU(d, from);
}

/// Widens bf16 bits in the lower half of each lane to their values.
template <class D>
HWY_INLINE hn::Vec<D> widen(D d, BFloat16, hn::Vec<UintOf<D>> bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

/// Widens fp16 bits in the lower half of each lane to their values.
template <class D>
HWY_INLINE hn::Vec<D> widen(D d, Float16, hn::Vec<UintOf<D>> half) {
  const UintOf<D> du;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000U)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffU)));
  const auto exponent = hn::And(magnitude, hn::Set(du, 0x7c00U << 13));
  const auto rebias = hn::Set(du, (127U - 15U) << 23);
  const auto normal = hn::Add(magnitude, rebias);
  const auto infinite_or_nan = hn::Add(normal, hn::Set(du, (128U - 16U) << 23));
  // A subnormal half is normalised: it gets the exponent of 2^-14, and that power is subtracted again.
  const auto smallest_normal = hn::Set(du, 113U << 23);
  const auto subnormal = hn::BitCast(
      du, hn::Sub(hn::BitCast(d, hn::Add(magnitude, smallest_normal)), hn::BitCast(d, smallest_normal)));
  auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7c00U << 13)), infinite_or_nan, normal);
  bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}

template <class D, class Type>  // BFloat16 or Float16
HWY_INLINE hn::Vec<D> load(D d, Type type, const uint16_t* HWY_RESTRICT from) {
  return widen(d, type, load_u16(d, from));
}

/// Returns the nearest bf16's bits in the upper half of each lane. The caller cuts off the lower half.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> round_upper(D, BFloat16, hn::Vec<D> value) {
  const UintOf<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU)));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  return hn::IfThenElse(is_nan, hn::Set(du, 0x7fc00000U), rounded);
}

/// Returns the nearest bf16's bits, in lanes of 16 bits.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> round_to(D d, BFloat16 type, hn::Vec<D> value) {
  return narrow_to_u16(d, hn::ShiftRight<16>(round_upper(d, type, value)));
}

/// Returns the nearest fp16's bits in each lane's lower half; the upper half is 0.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> round_lower(D d, Float16, hn::Vec<D> value) {
  const UintOf<D> du;
  const auto all_bits = hn::BitCast(du, value);
  const auto sign = hn::And(all_bits, hn::Set(du, 0x80000000U));
  const auto bits = hn::Xor(all_bits, sign);
  const auto signed_bits =
      hn::BitCast(hn::RebindToSigned<D>(), bits);  // never negative: compares as unsigned
  const hn::RebindToSigned<D> di;
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1U));
  // (15 - 127) << 23 rebiases the exponent, 0xfff plus the odd bit rounds to nearest even.
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(bits, hn::Set(du, 0xc8000fffU)), odd));
  // Below 2^-14 the addition of 0.5 aligns and rounds the mantissa in hardware.
  const auto half_ulp = hn::Set(du, ((127U - 15U) + (23U - 10U) + 1U) << 23);
  const auto subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, bits), hn::BitCast(d, half_ulp))), half_ulp);
  auto result =
      hn::IfThenElse(hn::RebindMask(du, hn::Lt(signed_bits, hn::Set(di, 113 << 23))), subnormal, normal);
  result = hn::IfThenElse(hn::RebindMask(du, hn::Gt(signed_bits, hn::Set(di, ((127 + 16) << 23) - 1))),
                          hn::Set(du, 0x7c00U), result);
  result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), hn::Set(du, 0x7e00U), result);
  return hn::Or(result, hn::ShiftRight<16>(sign));
}

/// Returns the nearest fp16's bits, in lanes of 16 bits.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> round_to(D d, Float16 type, hn::Vec<D> value) {
  return narrow_to_u16(d, round_lower(d, type, value));
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
