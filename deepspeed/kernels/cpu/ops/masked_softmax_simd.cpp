#include <limits>

#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/masked_softmax_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Writes scale * scores + mask to `row`, and returns the largest value. The maximum may miss a nan, but the
/// exponentials then contain the nan.
template <class Type, class MaskType>
HWY_INLINE Wide<Type> masked_row(Type type, MaskType mask_type, const BitsOf<Type>* HWY_RESTRICT scores,
                                 const BitsOf<MaskType>* HWY_RESTRICT mask, double scale, int64_t columns,
                                 Wide<Type>* HWY_RESTRICT row) {
  using T = Wide<Type>;
  const WideTag<Type> d;
  const auto scales = hn::Set(d, static_cast<T>(scale));
  const auto least = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto largest = least;
  for_each_vector(d, columns, [&](int64_t i, auto span) HWY_ATTR {
    auto x = hn::Mul(load(d, type, scores + i, span), scales);
    if (mask != nullptr) x = hn::Add(x, load(d, mask_type, mask + i, span));
    store(d, WideType<Type>(), x, row + i, span);
    largest = hn::Max(with_rest(d, x, span, least), largest);
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

template <class Type, class MaskType>
void masked_softmax_rows(Type type, MaskType mask_type, const MaskedSoftmaxArrays& a, int64_t begin,
                         int64_t end) {
  using T = Wide<Type>;
  const WideTag<Type> d;
  const WideType<Type> wide;
  std::vector<T> row(static_cast<size_t>(a.columns));
  T* const x = row.data();
  for (int64_t r = begin; r < end; ++r) {
    const auto* const mask =
        a.mask == nullptr ? nullptr : static_cast<const BitsOf<MaskType>*>(a.mask) + mask_offset(a, r);
    const auto* const scores = static_cast<const BitsOf<Type>*>(a.scores) + r * a.columns;
    auto* const output = static_cast<BitsOf<Type>*>(a.output) + r * a.columns;
    const auto largest = hn::Set(d, masked_row(type, mask_type, scores, mask, a.scale, a.columns, x));
    const T sum = sum_of(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
      const auto e = exp(d, hn::Sub(load(d, wide, x + i, span), largest));
      store(d, wide, e, x + i, span);
      return e;
    });
    const auto inverse = hn::Set(d, 1 / sum);
    for_each_vector(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
      store(d, type, hn::Mul(load(d, wide, x + i, span), inverse), output + i, span);
    });
  }
}

void masked_softmax_of_target(const MaskedSoftmaxArrays& arrays, int64_t begin, int64_t end) {
  with_type(arrays.type, [&](auto type) HWY_ATTR {
    if (arrays.mask_type == arrays.type) {
      masked_softmax_rows(type, type, arrays, begin, end);
    } else {  // fp32 mask with a 16-bit type
      masked_softmax_rows(type, WideType<decltype(type)>(), arrays, begin, end);
    }
  });
}

void softmax_backward_of_target(const SoftmaxBackwardArrays& a, int64_t begin, int64_t end) {
  with_type(a.type, [&](auto type) HWY_ATTR {
    using Type = decltype(type);
    const WideTag<Type> d;
    const auto scale = hn::Set(d, static_cast<Wide<Type>>(a.scale));
    for (int64_t r = begin; r < end; ++r) {
      const auto* const grad = static_cast<const BitsOf<Type>*>(a.grad_output) + r * a.columns;
      const auto* const y = static_cast<const BitsOf<Type>*>(a.output) + r * a.columns;
      auto* const grad_input = static_cast<BitsOf<Type>*>(a.grad_input) + r * a.columns;
      const auto dot = hn::Set(d, sum_of(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
                                 return hn::Mul(load(d, type, grad + i, span), load(d, type, y + i, span));
                               }));
      for_each_vector(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
        const auto centered = hn::Sub(load(d, type, grad + i, span), dot);
        store(d, type, hn::Mul(scale, hn::Mul(load(d, type, y + i, span), centered)), grad_input + i, span);
      });
    }
  });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(masked_softmax_of_target);
HWY_EXPORT(softmax_backward_of_target);

void masked_softmax_simd(const MaskedSoftmaxArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(masked_softmax_of_target)(arrays, begin, end);
}

void softmax_backward_simd(const SoftmaxBackwardArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(softmax_backward_of_target)(arrays, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
