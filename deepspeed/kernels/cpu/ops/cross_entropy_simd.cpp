#include <cmath>
#include <limits>

#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/cross_entropy_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

template <class Type>
HWY_INLINE Wide<Type> largest_of(Type type, const BitsOf<Type>* HWY_RESTRICT x, int64_t columns) {
  const WideTag<Type> d;
  const auto least = hn::Set(d, -std::numeric_limits<Wide<Type>>::infinity());
  auto largest = least;
  for_each_vector(d, columns, [&](int64_t i, auto span) HWY_ATTR {
    largest = hn::Max(with_rest(d, load(d, type, x + i, span), span, least), largest);
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// Returns the element at `x`, widened.
template <class Type>
HWY_INLINE Wide<Type> element_at(Type type, const BitsOf<Type>* x) {
  return hn::GetLane(load(WideTag<Type>(), type, x, Part{1}));
}

/// Writes gradient * (softmax - target distribution) over a row's logits `x`. The distribution gives the
/// class `target` 1 - smoothing and divides the rest among all classes. fp32 and fp64 logits have already
/// been replaced by exp(logit - largest).
template <class Type>
HWY_INLINE void write_gradient(Type type, BitsOf<Type>* x, int64_t columns, int64_t target,
                               Wide<Type> largest, Wide<Type> sum, Wide<Type> gradient,
                               Wide<Type> smoothing) {
  using T = Wide<Type>;
  const WideTag<Type> d;
  const auto shift = hn::Set(d, largest), factor = hn::Set(d, gradient / sum);
  const T even = gradient * smoothing / static_cast<T>(columns);
  const auto evens = hn::Set(d, even);
  const auto gradient_of = [&](auto e) HWY_ATTR { return hn::Sub(hn::Mul(e, factor), evens); };
  const auto exponentials = [&](const BitsOf<Type>* from, auto span) HWY_ATTR {
    const auto value = load(d, type, from, span);
    if constexpr (std::is_same_v<Type, WideType<Type>>) {
      return value;
    } else {
      return exp(d, hn::Sub(value, shift));
    }
  };
  // The target's gradient is computed before others overwrite its logit, so that it is rounded once.
  const T at_target =
      hn::GetLane(gradient_of(exponentials(x + target, Part{1}))) - gradient * (1 - smoothing);
  for_each_vector(d, columns, [&](int64_t i, auto span) HWY_ATTR {
    store(d, type, gradient_of(exponentials(x + i, span)), x + i, span);
  });
  store(d, type, hn::Set(d, at_target), x + target, Part{1});
}

template <class Type>
void cross_entropy_rows(Type type, const CrossEntropyArrays& a, int64_t begin, int64_t end) {
  using T = Wide<Type>;
  constexpr bool kIsWide = std::is_same_v<Type, WideType<Type>>;
  const WideTag<Type> d;
  const auto smoothing = static_cast<T>(a.label_smoothing);
  const bool writes = a.row_gradients != nullptr;
  for (int64_t row = begin; row < end; ++row) {
    auto* const x = static_cast<BitsOf<Type>*>(a.logits) + row * a.columns;
    T& loss = static_cast<T*>(a.losses)[row];
    const int64_t target = a.targets[row];
    const bool is_ignored = target == a.ignore_index;
    if (is_ignored || target < 0 || target >= a.columns) {
      loss = is_ignored ? T(0) : std::numeric_limits<T>::quiet_NaN();
      const auto rest = hn::Set(d, loss);
      if (!writes) continue;
      for_each_vector(d, a.columns,
                      [&](int64_t i, auto span) HWY_ATTR { store(d, type, rest, x + i, span); });
      continue;
    }
    const T at_target = element_at(type, x + target);
    const T largest = largest_of(type, x, a.columns);
    T mean = 0;
    if (smoothing != 0) {
      mean = sum_of(d, a.columns, [&](int64_t i, auto span) HWY_ATTR { return load(d, type, x + i, span); }) /
             static_cast<T>(a.columns);
    }
    const auto shift = hn::Set(d, largest);
    const T sum = sum_of(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
      const auto e = exp(d, hn::Sub(load(d, type, x + i, span), shift));
      if constexpr (kIsWide) {
        if (writes) store(d, type, e, x + i, span);
      }
      return e;
    });
    // log(sum) + largest - (1 - smoothing) x_t - smoothing mean, ordered so that large terms cancel first.
    loss = std::log(sum) + (1 - smoothing) * (largest - at_target);
    if (smoothing != 0) loss += smoothing * (largest - mean);
    if (writes) {
      write_gradient(type, x, a.columns, target, largest, sum, static_cast<const T*>(a.row_gradients)[row],
                     smoothing);
    }
  }
}

void cross_entropy_of_target(const CrossEntropyArrays& arrays, int64_t begin, int64_t end) {
  with_type(arrays.type, [&](auto type) HWY_ATTR { cross_entropy_rows(type, arrays, begin, end); });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(cross_entropy_of_target);

void cross_entropy_simd(const CrossEntropyArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_of_target)(arrays, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
