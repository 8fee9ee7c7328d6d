#include <cstring>
#include <type_traits>

#include "deepspeed/kernels/cpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/update_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/half_precision-inl.h"
#include "deepspeed/kernels/cpu/update_rules-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

struct NoCopy {};

/// Names the type that the rule computes in.
template <class Gradient>
using ValueOf = std::conditional_t<std::is_same_v<Gradient, Float64>, double, float>;

/// Points to one vector of each array.
template <class Gradient>
struct Places {
  ValueOf<Gradient>* master;
  const typename Gradient::Bits* gradient;
  ValueOf<Gradient>* states[3];
  uint16_t* copy;
};

template <class Gradient, class Copy, class Rule, class D>
HWY_INLINE void update_vector(D d, const Rule& rule, const Places<Gradient>& at) {
  auto p = hn::LoadU(d, at.master);
  const auto g = hn::Mul(load(d, Gradient(), at.gradient), all_of(d, rule.gradient_scale));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d);
  if constexpr (Rule::kNumStates > 0) s0 = hn::LoadU(d, at.states[0]);
  if constexpr (Rule::kNumStates > 1) s1 = hn::LoadU(d, at.states[1]);
  if constexpr (Rule::kNumStates > 2) s2 = hn::LoadU(d, at.states[2]);
  apply(d, rule, g, p, s0, s1, s2);
  if constexpr (Rule::kNumStates > 0) hn::StoreU(s0, d, at.states[0]);
  if constexpr (Rule::kNumStates > 1) hn::StoreU(s1, d, at.states[1]);
  if constexpr (Rule::kNumStates > 2) hn::StoreU(s2, d, at.states[2]);
  if constexpr (kWritesMaster<Rule>) {
    hn::StoreU(p, d, at.master);
    if constexpr (!std::is_same_v<Copy, NoCopy>) {
      hn::StoreU(round_to(d, Copy(), p), hn::Rebind<uint16_t, D>(), at.copy);
    }
  }
}

template <class Gradient>
HWY_INLINE Places<Gradient> places_at(const UpdateArrays& arrays, int64_t i) {
  using Value = ValueOf<Gradient>;
  const auto state = [&](int k) {
    return arrays.states[k] == nullptr ? nullptr : static_cast<Value*>(arrays.states[k]) + i;
  };
  auto* const copy = static_cast<uint16_t*>(arrays.low_precision);
  return {static_cast<Value*>(arrays.master) + i,
          static_cast<const typename Gradient::Bits*>(arrays.gradient) + i,
          {state(0), state(1), state(2)},
          copy == nullptr ? nullptr : copy + i};
}

/// Updates the last elements, which do not fill a vector, through padded copies.
template <class Gradient, class Copy, class Rule, class D>
HWY_NOINLINE void update_rest(D d, const Rule& rule, const Places<Gradient>& at, size_t rest) {
  constexpr size_t kMaxLanes = hn::MaxLanes(D());
  ValueOf<Gradient> p[kMaxLanes] = {}, s[3][kMaxLanes] = {};
  typename Gradient::Bits g[kMaxLanes] = {};
  uint16_t low[kMaxLanes] = {};
  std::memcpy(p, at.master, rest * sizeof(*p));
  std::memcpy(g, at.gradient, rest * sizeof(*g));
  for (int k = 0; k < Rule::kNumStates; ++k) std::memcpy(s[k], at.states[k], rest * sizeof(*p));
  update_vector<Gradient, Copy>(d, rule, Places<Gradient>{p, g, {s[0], s[1], s[2]}, low});
  std::memcpy(at.master, p, rest * sizeof(*p));
  for (int k = 0; k < Rule::kNumStates; ++k) std::memcpy(at.states[k], s[k], rest * sizeof(*p));
  if (kWritesMaster<Rule> && at.copy != nullptr) std::memcpy(at.copy, low, rest * sizeof(*low));
}

template <class Gradient, class Copy, class Rule>
HWY_INLINE void update_range(const UpdateArrays& arrays, const Rule rule, int64_t begin, int64_t end) {
  const hn::ScalableTag<ValueOf<Gradient>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    update_vector<Gradient, Copy>(d, rule, places_at<Gradient>(arrays, i));
  }
  if (i < end) {
    update_rest<Gradient, Copy>(d, rule, places_at<Gradient>(arrays, i), static_cast<size_t>(end - i));
  }
}

template <class Gradient, class Rule>
HWY_NOINLINE void dispatch_copy(const UpdateArrays& arrays, const Rule& rule, int64_t begin, int64_t end) {
  if (!kWritesMaster<Rule> || arrays.low_precision == nullptr) {
    update_range<Gradient, NoCopy>(arrays, rule, begin, end);
  } else if constexpr (kWritesMaster<Rule>) {
    if (arrays.low_precision_type == ElementType::kFloat16) {
      update_range<Gradient, Float16>(arrays, rule, begin, end);
    } else {
      update_range<Gradient, BFloat16>(arrays, rule, begin, end);
    }
  }
}

template <class Rule>
HWY_INLINE void dispatch_gradient(const UpdateArrays& arrays, const Rule& rule, int64_t begin, int64_t end) {
  if (arrays.gradient_type == ElementType::kFloat32) {
    dispatch_copy<Float32>(arrays, rule, begin, end);
  } else if (arrays.gradient_type == ElementType::kFloat16) {
    dispatch_copy<Float16>(arrays, rule, begin, end);
  } else {
    dispatch_copy<BFloat16>(arrays, rule, begin, end);
  }
}

void update_of_target(const UpdateArrays& arrays, const UpdateRule& rule, int64_t begin, int64_t end) {
  std::visit(
      [&](const auto& r) {
        if (arrays.gradient_type == ElementType::kFloat64) {
          update_range<Float64, NoCopy>(arrays, r, begin, end);
        } else if constexpr (kTakesFloat<std::decay_t<decltype(r)>>) {
          dispatch_gradient(arrays, r, begin, end);
        }
      },
      rule);
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(update_of_target);

void update_simd(const UpdateArrays& arrays, const UpdateRule& rule, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(update_of_target)(arrays, rule, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
