// CPU Adam, compiled once for each instruction set (Highway's foreach_target) and selected at run time.
//
// A range of elements is cut at multiples of 2^32, where the random numbers change their key. It is then
// processed in pairs of vectors (only bf16 moments: they are limited by arithmetic, and two chains overlap),
// in single vectors, and finally in one padded vector, so that the last elements use the same code. fp32
// moments use no contracted multiply-add, so every instruction set gives the same bits. bf16 moments are
// rounded stochastically by rounding_hash.h and use fused operations if available.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "deepspeed/kernels/arguments/rounding_hash.h"
#include "deepspeed/kernels/cpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/adam_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/adam_masters-inl.h"
#include "deepspeed/kernels/cpu/half_precision-inl.h"
#include "deepspeed/kernels/cpu/stochastic_rounding-inl.h"
#include "deepspeed/kernels/cpu/vector_pair-inl.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

template <class D>
HWY_INLINE void store_moments(D d, Float32, hn::Vec<D> m, hn::Vec<D> v, uint32_t, uint32_t,
                              float* HWY_RESTRICT m_to, float* HWY_RESTRICT v_to) {
  hn::StoreU(m, d, m_to);
  hn::StoreU(v, d, v_to);
}

/// Computes the new master and moments of one vector, in place. With fp32 moments each operation rounds to
/// fp32 separately.
template <bool kL2, class D>
HWY_INLINE void update_values(D d, Float32, const AdamConstants& c, hn::Vec<D> g, hn::Vec<D>& p,
                              hn::Vec<D>& m, hn::Vec<D>& v) {
  // Both kinds of decay are always computed, one of them with 0. This is cheaper than two branches per
  // vector.
  g = hn::Add(hn::Mul(g, hn::Set(d, c.gradient_scale)), hn::Mul(hn::Set(d, c.l2_decay), p));
  m = hn::Add(hn::Mul(m, hn::Set(d, c.beta1)), hn::Mul(hn::Set(d, c.one_minus_beta1), g));
  v = hn::Add(hn::Mul(v, hn::Set(d, c.beta2)), hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), g), g));
  const auto denominator = hn::Add(hn::Sqrt(v), hn::Set(d, c.eps));
  const auto update = hn::Div(hn::Mul(hn::Set(d, c.step_size), m), denominator);
  p = hn::Sub(p, hn::Add(hn::Mul(hn::Set(d, c.decoupled_decay), p), update));
}

/// Computes one vector with bf16 moments. Arithmetic is the bottleneck here, not memory, so multiplications
/// and additions are fused if the instruction set allows.
template <bool kL2, class D>
HWY_INLINE void update_values(D d, BFloat16, const AdamConstants& c, hn::Vec<D> g, hn::Vec<D>& p,
                              hn::Vec<D>& m, hn::Vec<D>& v) {
  if constexpr (kL2) {
    g = hn::MulAdd(hn::Set(d, c.l2_decay), p, hn::Mul(g, hn::Set(d, c.gradient_scale)));
  }
  m = hn::MulAdd(m, hn::Set(d, c.beta1), hn::Mul(hn::Set(d, c.to_exp_avg), g));
  const auto root = hn::Mul(hn::Set(d, c.to_root_of_square), g);
  v = hn::MulAdd(root, root, hn::Mul(v, hn::Set(d, c.beta2)));
  const auto denominator =
      hn::MulAdd(hn::Sqrt(v), hn::Set(d, c.inverse_step_size), hn::Set(d, c.eps_over_step_size));
  p = hn::Sub(hn::NegMulAdd(hn::Set(d, c.decoupled_decay), p, p), hn::Div(m, denominator));
}

/// Updates one vector of every array. The copy may share the gradient's memory.
template <class Gradient, class Moment, class Copy, bool kL2, class D>
HWY_INLINE void update_vector(D d, const AdamConstants& c, uint32_t key, uint32_t index, bool stream,
                              MasterOf<Copy>* HWY_RESTRICT master, const typename Gradient::Bits* gradient,
                              typename Moment::Bits* HWY_RESTRICT exp_avg,
                              typename Moment::Bits* HWY_RESTRICT exp_avg_sq, uint16_t* copy) {
  auto p = Masters<Copy>::load_one(d, master, copy);
  auto m = load(d, Moment(), exp_avg);
  auto v = load(d, Moment(), exp_avg_sq);
  update_values<kL2>(d, Moment(), c, load(d, Gradient(), gradient), p, m, v);
  store_moments(d, Moment(), m, v, key, index, exp_avg, exp_avg_sq);
  Masters<Copy>::store_one(d, p, stream, master, copy);
}

template <class Copy>
HWY_INLINE uint16_t* at(uint16_t* copy, int64_t i) {
  if constexpr (kHasCopy<Copy>) {
    return copy + i;
  } else {
    return nullptr;
  }
}

#if HWY_TARGET != HWY_SCALAR
/// Updates two vectors of every array. The operations of both overlap, and their 16-bit elements are stored
/// at once.
template <class Gradient, class Moment, class Copy, bool kL2, class D>
HWY_INLINE void update_pair(D d, const AdamConstants& c, uint32_t key, uint32_t index,
                            hn::Vec<UintOf<D>>& counters, bool stream, MasterOf<Copy>* HWY_RESTRICT master,
                            const typename Gradient::Bits* gradient,
                            typename Moment::Bits* HWY_RESTRICT exp_avg,
                            typename Moment::Bits* HWY_RESTRICT exp_avg_sq, uint16_t* copy) {
  auto p0 = hn::Zero(d), p1 = p0, g0 = p0, g1 = p0, m0 = p0, m1 = p0, v0 = p0, v1 = p0;
  Masters<Copy>::load_two(d, master, copy, p0, p1);
  load_pair(d, Gradient(), gradient, g0, g1);
  load_pair(d, Moment(), exp_avg, m0, m1);
  load_pair(d, Moment(), exp_avg_sq, v0, v1);
  update_values<kL2>(d, Moment(), c, g0, p0, m0, v0);
  update_values<kL2>(d, Moment(), c, g1, p1, m1, v1);
  store_moment_pairs(d, key, index, counters, m0, v0, m1, v1, exp_avg, exp_avg_sq);
  Masters<Copy>::store_two(d, p0, p1, stream, master, copy);
}

/// Updates the pairs of vectors that fit into [i, end), and returns the next element. Does nothing if i +
/// first_index is not a multiple of 8.
template <class Gradient, class Moment, class Copy, bool kL2, class D>
HWY_INLINE int64_t update_pairs(D d, const AdamConstants& c, uint32_t key, int64_t i, int64_t end,
                                bool stream, MasterOf<Copy>* master, const typename Gradient::Bits* gradient,
                                typename Moment::Bits* exp_avg, typename Moment::Bits* exp_avg_sq,
                                uint16_t* copy) {
  constexpr int64_t kPrefetchNumel = 512;
  const int64_t two = 2 * static_cast<int64_t>(hn::Lanes(d));
  const int64_t first = c.first_index;
  if ((i + first) % 8 != 0) {
    return i;
  }
  auto counters = first_counters(d, key, static_cast<uint32_t>(i + first));
  for (; i + two <= end; i += two) {
    // The loop body fills the processor's look-ahead window, so it would not find its next loads by itself.
    hwy::Prefetch(master + i + kPrefetchNumel);
    hwy::Prefetch(gradient + i + kPrefetchNumel);
    hwy::Prefetch(exp_avg + i + kPrefetchNumel);
    hwy::Prefetch(exp_avg_sq + i + kPrefetchNumel);
    if constexpr (std::is_same_v<Copy, UpperHalf>) hwy::Prefetch(copy + i + kPrefetchNumel);
    update_pair<Gradient, Moment, Copy, kL2>(d, c, key, static_cast<uint32_t>(i + first), counters, stream,
                                             master + i, gradient + i, exp_avg + i, exp_avg_sq + i,
                                             at<Copy>(copy, i));
  }
  return i;
}
#else
template <class Gradient, class Moment, class Copy, bool kL2, class D>
HWY_INLINE int64_t update_pairs(D, const AdamConstants&, uint32_t, int64_t i, int64_t, bool, MasterOf<Copy>*,
                                const typename Gradient::Bits*, typename Moment::Bits*,
                                typename Moment::Bits*, uint16_t*) {
  return i;
}
#endif

/// Updates the elements [begin, end). Their indices in the undivided array have equal upper 32 bits.
template <class Gradient, class Moment, class Copy, bool kL2>
HWY_INLINE void update_range(const AdamArrays& arrays, const AdamConstants c, int64_t begin, int64_t end,
                             bool stream) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t first = c.first_index;
  const uint32_t key = rounding_key(c.rounding_seed, static_cast<uint64_t>(begin + first) >> 32);
  auto* const master = static_cast<MasterOf<Copy>*>(arrays.master);
  const auto* const gradient = static_cast<const typename Gradient::Bits*>(arrays.gradient);
  auto* const exp_avg = static_cast<typename Moment::Bits*>(arrays.exp_avg);
  auto* const exp_avg_sq = static_cast<typename Moment::Bits*>(arrays.exp_avg_sq);
  auto* const copy = static_cast<uint16_t*>(arrays.low_precision);

  int64_t i = begin;
  if constexpr (std::is_same_v<Moment, BFloat16>) {  // pairs do not speed up fp32 moments
    i = update_pairs<Gradient, Moment, Copy, kL2>(d, c, key, i, end, stream, master, gradient, exp_avg,
                                                  exp_avg_sq, copy);
  }
  for (; i + lanes <= end; i += lanes) {
    update_vector<Gradient, Moment, Copy, kL2>(d, c, key, static_cast<uint32_t>(i + first), stream,
                                               master + i, gradient + i, exp_avg + i, exp_avg_sq + i,
                                               at<Copy>(copy, i));
  }
  const size_t rest = static_cast<size_t>(end - i);
  if (rest == 0) {
    return;
  }
  constexpr size_t kMaxLanes = hn::MaxLanes(hn::ScalableTag<float>());
  MasterOf<Copy> p[kMaxLanes] = {};
  typename Gradient::Bits g[kMaxLanes] = {};
  typename Moment::Bits m[kMaxLanes] = {};
  typename Moment::Bits v[kMaxLanes] = {};
  uint16_t low[kMaxLanes] = {};
  std::memcpy(p, master + i, rest * sizeof(*p));
  std::memcpy(g, gradient + i, rest * sizeof(*g));
  std::memcpy(m, exp_avg + i, rest * sizeof(*m));
  std::memcpy(v, exp_avg_sq + i, rest * sizeof(*v));
  if constexpr (std::is_same_v<Copy, UpperHalf>) std::memcpy(low, copy + i, rest * sizeof(*low));
  update_vector<Gradient, Moment, Copy, kL2>(d, c, key, static_cast<uint32_t>(i + first), false, p, g, m, v,
                                             low);
  std::memcpy(master + i, p, rest * sizeof(*p));
  std::memcpy(exp_avg + i, m, rest * sizeof(*m));
  std::memcpy(exp_avg_sq + i, v, rest * sizeof(*v));
  if (copy != nullptr) {
    std::memcpy(copy + i, low, rest * sizeof(*low));
  }
}

template <class Gradient, class Moment, bool kL2>
HWY_INLINE void dispatch_copy(const AdamArrays& arrays, const AdamConstants& c, int64_t begin, int64_t end,
                              bool stream) {
  switch (arrays.master_form) {
    case MasterForm::kLowerHalf:
      return update_range<Gradient, Moment, UpperHalf, kL2>(arrays, c, begin, end, false);
    case MasterForm::kFloat16:
      return update_range<Gradient, Moment, InPlace<Float16>, kL2>(arrays, c, begin, end, false);
    case MasterForm::kBFloat16:
      return update_range<Gradient, Moment, InPlace<BFloat16>, kL2>(arrays, c, begin, end, false);
    case MasterForm::kFloat32:
      break;
  }
  if (arrays.low_precision == nullptr) {
    update_range<Gradient, Moment, NoCopy, kL2>(arrays, c, begin, end, stream);
  } else if (arrays.low_precision_type == ElementType::kFloat16) {
    update_range<Gradient, Moment, Float16, kL2>(arrays, c, begin, end, stream);
  } else {
    update_range<Gradient, Moment, BFloat16, kL2>(arrays, c, begin, end, stream);
  }
}

template <class Gradient>
HWY_NOINLINE void dispatch_moment(const AdamArrays& arrays, const AdamConstants& c, int64_t begin,
                                  int64_t end, bool stream) {
  if (arrays.moment_type == ElementType::kFloat32) {
    dispatch_copy<Gradient, Float32, true>(arrays, c, begin, end, stream);
  } else if (c.l2_decay != 0) {
    dispatch_copy<Gradient, BFloat16, true>(arrays, c, begin, end, stream);
  } else {
    dispatch_copy<Gradient, BFloat16, false>(arrays, c, begin, end, stream);
  }
}

void adam_of_target(const AdamArrays& arrays, const AdamConstants& c, int64_t begin, int64_t end,
                    bool stream) {
  const size_t copy_bytes = 2 * hn::Lanes(hn::ScalableTag<float>()) * sizeof(uint16_t);  // per store
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
  constexpr int64_t kCounterPeriod = int64_t{1} << 32;  // the counter of the random bits has 32 bits per key
  constexpr int64_t kPairs = 8;  // index multiple at which 16-bit moments can use pairs of vectors
  while (begin < end) {
    const int64_t index = begin + constants.first_index;
    const bool in_pairs = arrays.moment_type == ElementType::kFloat32 || index % kPairs == 0;
    const int64_t period = in_pairs ? kCounterPeriod : kPairs;
    const int64_t stop = std::min(end, begin + period - index % period);
    HWY_DYNAMIC_DISPATCH(adam_of_target)(arrays, constants, begin, stop, stream);
    begin = stop;
  }
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
