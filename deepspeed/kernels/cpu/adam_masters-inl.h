// Loads and stores Adam's masters in every form, with their 16-bit copy, one vector or two at a time.
// Included once per instruction set.
#if defined(DEEPSPEED_KERNELS_CPU_ADAM_MASTERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPSPEED_KERNELS_CPU_ADAM_MASTERS_INL_H_
#undef DEEPSPEED_KERNELS_CPU_ADAM_MASTERS_INL_H_
#else
#define DEEPSPEED_KERNELS_CPU_ADAM_MASTERS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "deepspeed/kernels/cpu/half_precision-inl.h"
#include "deepspeed/kernels/cpu/split_master-inl.h"
#include "deepspeed/kernels/cpu/vector_pair-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

// The copy of the masters is Float16, BFloat16 or none:
struct NoCopy {};

template <class D16>
HWY_INLINE void store_or_stream(D16 d16, hn::Vec<D16> bits, bool stream, uint16_t* HWY_RESTRICT to) {
  if (stream) {
    hn::Stream(bits, d16, to);
  } else {
    hn::StoreU(bits, d16, to);
  }
}

// The two types below replace the copy's type if there is no fp32 master besides the copy.
/// Says that the copy is the upper half of split masters (split_master.h).
struct UpperHalf {};
/// Marks 16-bit masters without a copy.
template <class Type>
struct InPlace {};

/// Loads and stores masters together with their copy.
template <class Copy>
struct Masters {
  using Bits = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> load_one(D d, const float* HWY_RESTRICT from, const uint16_t*) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void store_one(D d, hn::Vec<D> p, bool stream, float* HWY_RESTRICT to,
                                   uint16_t* HWY_RESTRICT copy) {
    hn::StoreU(p, d, to);
    if constexpr (!std::is_same_v<Copy, NoCopy>)
      store_or_stream(hn::Rebind<uint16_t, D>(), round_to(d, Copy(), p), stream, copy);
  }
#if HWY_TARGET != HWY_SCALAR
  template <class D>
  static HWY_INLINE void load_two(D d, const float* HWY_RESTRICT from, const uint16_t*, hn::Vec<D>& p0,
                                  hn::Vec<D>& p1) {
    load_pair(d, Float32(), from, p0, p1);
  }
  template <class D>
  static HWY_INLINE void store_two(D d, hn::Vec<D> p0, hn::Vec<D> p1, bool stream, float* HWY_RESTRICT to,
                                   uint16_t* HWY_RESTRICT copy) {
    store_pair(d, p0, p1, to);
    if constexpr (!std::is_same_v<Copy, NoCopy>)
      store_or_stream(PairOf<D>(), round_pair(d, Copy(), p0, p1), stream, copy);
  }
#endif
};

template <>
struct Masters<UpperHalf> {
  using Bits = uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load_one(D d, const uint16_t* HWY_RESTRICT lower,
                                        const uint16_t* HWY_RESTRICT upper) {
    return load_split(d, upper, lower);
  }
  template <class D>
  static HWY_INLINE void store_one(D d, hn::Vec<D> p, bool, uint16_t* HWY_RESTRICT lower,
                                   uint16_t* HWY_RESTRICT upper) {
    store_split(d, p, upper, lower);
  }
#if HWY_TARGET != HWY_SCALAR
  template <class D>
  static HWY_INLINE void load_two(D d, const uint16_t* HWY_RESTRICT lower, const uint16_t* HWY_RESTRICT upper,
                                  hn::Vec<D>& p0, hn::Vec<D>& p1) {
    load_split_pair(d, upper, lower, p0, p1);
  }
  template <class D>
  static HWY_INLINE void store_two(D d, hn::Vec<D> p0, hn::Vec<D> p1, bool, uint16_t* HWY_RESTRICT lower,
                                   uint16_t* HWY_RESTRICT upper) {
    store_split_pair(d, p0, p1, upper, lower);
  }
#endif
};

template <class Type>
struct Masters<InPlace<Type>> {
  using Bits = uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load_one(D d, const uint16_t* HWY_RESTRICT from, const uint16_t*) {
    return load(d, Type(), from);
  }
  template <class D>
  static HWY_INLINE void store_one(D d, hn::Vec<D> p, bool, uint16_t* HWY_RESTRICT to, uint16_t*) {
    hn::StoreU(round_to(d, Type(), p), hn::Rebind<uint16_t, D>(), to);
  }
#if HWY_TARGET != HWY_SCALAR
  template <class D>
  static HWY_INLINE void load_two(D d, const uint16_t* HWY_RESTRICT from, const uint16_t*, hn::Vec<D>& p0,
                                  hn::Vec<D>& p1) {
    load_pair(d, Type(), from, p0, p1);
  }
  template <class D>
  static HWY_INLINE void store_two(D d, hn::Vec<D> p0, hn::Vec<D> p1, bool, uint16_t* HWY_RESTRICT to,
                                   uint16_t*) {
    hn::StoreU(round_pair(d, Type(), p0, p1), PairOf<D>(), to);
  }
#endif
};

template <class Copy>
inline constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
template <class Type>
inline constexpr bool kHasCopy<InPlace<Type>> = false;

template <class Copy>
using MasterOf = typename Masters<Copy>::Bits;

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
