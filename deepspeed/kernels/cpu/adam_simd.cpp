#include "deepspeed/kernels/cpu/adam_simd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "deepspeed/kernels/rounding_hash.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/adam_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/half_precision-inl.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

struct NoCopy {
  using Bits = uint16_t;
};

/// Random bits of the elements `counter`, `counter + 1`, ...: the function of rounding_hash.h.
template <class D>
HWY_INLINE hn::Vec<UintOf<D>> random_bits(D, RoundingKey key, uint32_t counter) {
  const UintOf<D> du;
  // Iota of a constant is a load; of a variable it goes through the stack lane by lane.
  auto x = hn::Add(hn::Iota(du, 0), hn::Set(du, counter + key.low));
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  x = hn::Mul(x, hn::Set(du, kHashMultiplier1));
  x = hn::Xor(x, hn::Set(du, key.high));
  x = hn::Xor(x, hn::ShiftRight<15>(x));
  x = hn::Mul(x, hn::Set(du, kHashMultiplier2));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

/// The mantissa's 16 lower bits decide, against the random ones, whether the bf16 is the next one up:
/// unbiased.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> round_stochastically(D d, hn::Vec<D> value,
                                                                 hn::Vec<UintOf<D>> random) {
  const UintOf<D> du;
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));  // a carry would turn a nan into a number
  const auto bits = hn::Add(hn::BitCast(du, value), hn::IfThenZeroElse(is_nan, random));
  return narrow_to_u16(d, hn::ShiftRight<16>(bits));
}

template <class D>
HWY_INLINE void store_moments(D d, Float32, hn::Vec<D> m, hn::Vec<D> v, RoundingKey, uint32_t,
                              float* HWY_RESTRICT m_to, float* HWY_RESTRICT v_to) {
  hn::StoreU(m, d, m_to);
  hn::StoreU(v, d, v_to);
}

template <class D>
HWY_INLINE void store_moments(D d, BFloat16, hn::Vec<D> m, hn::Vec<D> v, RoundingKey key, uint32_t counter,
                              uint16_t* HWY_RESTRICT m_to, uint16_t* HWY_RESTRICT v_to) {
  const UintOf<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto random = random_bits(d, key, counter);
  hn::StoreU(round_stochastically(d, m, hn::And(random, hn::Set(du, 0xffffU))), d16, m_to);
  hn::StoreU(round_stochastically(d, v, hn::ShiftRight<16>(random)), d16, v_to);
}

template <class D>
HWY_INLINE void store_copy(D, NoCopy, hn::Vec<D>, bool, uint16_t*) {}

template <class D, class Copy>
HWY_INLINE void store_copy(D d, Copy copy, hn::Vec<D> value, bool stream, uint16_t* HWY_RESTRICT to) {
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = narrow_to_u16(d, round_to(d, copy, value));
  if (stream) {
    hn::Stream(bits, d16, to);
  } else {
    hn::StoreU(bits, d16, to);
  }
}

/// One vector of every array. Each operation rounds to fp32 on its own.
template <class Gradient, class Moment, class Copy, class D>
HWY_INLINE void update_vector(D d, const AdamConstants& c, RoundingKey key, uint32_t counter, bool stream,
                              float* HWY_RESTRICT master,
                              const typename Gradient::Bits* HWY_RESTRICT gradient,
                              typename Moment::Bits* HWY_RESTRICT exp_avg,
                              typename Moment::Bits* HWY_RESTRICT exp_avg_sq,
                              typename Copy::Bits* HWY_RESTRICT copy) {
  auto p = hn::LoadU(d, master);
  auto g = hn::Mul(load(d, Gradient(), gradient), hn::Set(d, c.gradient_scale));
  if (c.l2_decay != 0) {
    g = hn::Add(g, hn::Mul(hn::Set(d, c.l2_decay), p));
  }
  auto m = hn::Mul(load(d, Moment(), exp_avg), hn::Set(d, c.beta1));
  m = hn::Add(m, hn::Mul(hn::Set(d, c.one_minus_beta1), g));
  auto v = hn::Mul(load(d, Moment(), exp_avg_sq), hn::Set(d, c.beta2));
  v = hn::Add(v, hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), g), g));
  const auto denominator = hn::Add(hn::Mul(hn::Sqrt(v), hn::Set(d, c.inverse_sqrt_bias2)), hn::Set(d, c.eps));
  auto update = hn::Div(hn::Mul(hn::Set(d, c.step_size), m), denominator);
  if (c.decoupled_decay != 0) {
    update = hn::Add(hn::Mul(hn::Set(d, c.decoupled_decay), p), update);
  }
  p = hn::Sub(p, update);
  hn::StoreU(p, d, master);
  store_moments(d, Moment(), m, v, key, counter, exp_avg, exp_avg_sq);
  store_copy(d, Copy(), p, stream, copy);
}

template <class Copy>
HWY_INLINE uint16_t* at(uint16_t* copy, int64_t i) {
  if constexpr (std::is_same_v<Copy, NoCopy>) {
    return nullptr;
  } else {
    return copy + i;
  }
}

/// The elements [begin, end), which share the upper half of their index.
template <class Gradient, class Moment, class Copy>
HWY_INLINE void update_range(const AdamArrays& arrays, const AdamConstants c, int64_t begin, int64_t end,
                             bool stream) {
  using Bits16 = typename Copy::Bits;
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const RoundingKey key = rounding_key(c.rounding_seed, static_cast<uint64_t>(begin) >> 32);
  float* const master = arrays.master;
  const auto* const gradient = static_cast<const typename Gradient::Bits*>(arrays.gradient);
  auto* const exp_avg = static_cast<typename Moment::Bits*>(arrays.exp_avg);
  auto* const exp_avg_sq = static_cast<typename Moment::Bits*>(arrays.exp_avg_sq);
  auto* const copy = static_cast<Bits16*>(arrays.low_precision);

  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    update_vector<Gradient, Moment, Copy>(d, c, key, static_cast<uint32_t>(i), stream, master + i,
                                          gradient + i, exp_avg + i, exp_avg_sq + i, at<Copy>(copy, i));
  }
  const size_t rest = static_cast<size_t>(end - i);
  if (rest == 0) {
    return;
  }
  constexpr size_t kMaxLanes = hn::MaxLanes(hn::ScalableTag<float>());
  float p[kMaxLanes] = {};
  typename Gradient::Bits g[kMaxLanes] = {};
  typename Moment::Bits m[kMaxLanes] = {};
  typename Moment::Bits v[kMaxLanes] = {};
  Bits16 low[kMaxLanes] = {};
  std::memcpy(p, master + i, rest * sizeof(*p));
  std::memcpy(g, gradient + i, rest * sizeof(*g));
  std::memcpy(m, exp_avg + i, rest * sizeof(*m));
  std::memcpy(v, exp_avg_sq + i, rest * sizeof(*v));
  update_vector<Gradient, Moment, Copy>(d, c, key, static_cast<uint32_t>(i), false, p, g, m, v, low);
  std::memcpy(master + i, p, rest * sizeof(*p));
  std::memcpy(exp_avg + i, m, rest * sizeof(*m));
  std::memcpy(exp_avg_sq + i, v, rest * sizeof(*v));
  if (copy != nullptr) {
    std::memcpy(copy + i, low, rest * sizeof(*low));
  }
}

template <class Gradient, class Moment>
HWY_INLINE void dispatch_copy(const AdamArrays& arrays, const AdamConstants& c, int64_t begin, int64_t end,
                              bool stream) {
  if (arrays.low_precision == nullptr) {
    update_range<Gradient, Moment, NoCopy>(arrays, c, begin, end, stream);
  } else if (arrays.low_precision_type == ElementType::kFloat16) {
    update_range<Gradient, Moment, Float16>(arrays, c, begin, end, stream);
  } else {
    update_range<Gradient, Moment, BFloat16>(arrays, c, begin, end, stream);
  }
}

template <class Gradient>
HWY_NOINLINE void dispatch_moment(const AdamArrays& arrays, const AdamConstants& c, int64_t begin,
                                  int64_t end, bool stream) {
  if (arrays.moment_type == ElementType::kFloat32) {
    dispatch_copy<Gradient, Float32>(arrays, c, begin, end, stream);
  } else {
    dispatch_copy<Gradient, BFloat16>(arrays, c, begin, end, stream);
  }
}

void adam_of_target(const AdamArrays& arrays, const AdamConstants& c, int64_t begin, int64_t end,
                    bool stream) {
  const size_t copy_bytes = hn::Lanes(hn::ScalableTag<float>()) * sizeof(uint16_t);
  const auto address = reinterpret_cast<uintptr_t>(arrays.low_precision) + 2 * static_cast<uintptr_t>(begin);
  const bool can_stream = stream && address % copy_bytes == 0;
  if (arrays.gradient_type == ElementType::kFloat32) {
    dispatch_moment<Float32>(arrays, c, begin, end, can_stream);
  } else if (arrays.gradient_type == ElementType::kFloat16) {
    dispatch_moment<Float16>(arrays, c, begin, end, can_stream);
  } else {
    dispatch_moment<BFloat16>(arrays, c, begin, end, can_stream);
  }
  if (can_stream) {
    hwy::FlushStream();
  }
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {
HWY_EXPORT(adam_of_target);

void adam_simd(const AdamArrays& arrays, const AdamConstants& constants, int64_t begin, int64_t end,
               bool stream) {
  constexpr int64_t kCounterPeriod = int64_t{1} << 32;  // the random bits count with 32 bits a key
  while (begin < end) {
    const int64_t stop = std::min(end, (begin / kCounterPeriod + 1) * kCounterPeriod);
    HWY_DYNAMIC_DISPATCH(adam_of_target)(arrays, constants, begin, stop, stream);
    begin = stop;
  }
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
