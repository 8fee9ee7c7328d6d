// After adding the residual, if there is one, a row takes three passes. They compute the mean, the variance
// around that mean, and the output; later passes read from cache. The backward takes two passes. The first
// makes sums over the row and adds the row's share of the gradients of weight and bias. The second makes the
// gradient of the input.
#include <cmath>

#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/normalization_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

/// Adds two rows and rounds the sum to the stored type.
template <class Type>
HWY_INLINE void add_rows(Type type, const BitsOf<Type>* HWY_RESTRICT a, const BitsOf<Type>* HWY_RESTRICT b,
                         BitsOf<Type>* HWY_RESTRICT to, int64_t columns) {
  const WideTag<Type> d;
  for_each_vector(d, columns, [&](int64_t i, auto span) HWY_ATTR {
    store(d, type, hn::Add(load(d, type, a + i, span), load(d, type, b + i, span)), to + i, span);
  });
}

template <class Type>
void norm_rows(Type type, const NormArrays& a, int64_t begin, int64_t end) {
  using T = Wide<Type>;
  using Bits = BitsOf<Type>;
  const WideTag<Type> d;
  const auto weight = widened<Type>(a.weight, a.parameter_type, a.columns);
  const auto bias = widened<Type>(a.bias, a.parameter_type, a.columns);
  for (int64_t row = begin; row < end; ++row) {
    const Bits* x = static_cast<const Bits*>(a.input) + row * a.columns;
    if (a.residual != nullptr) {
      Bits* const sum = static_cast<Bits*>(a.sum) + row * a.columns;
      add_rows(type, x, static_cast<const Bits*>(a.residual) + row * a.columns, sum, a.columns);
      x = sum;
    }
    const auto load_x = [&](int64_t i, auto span) HWY_ATTR { return load(d, type, x + i, span); };
    T mean = 0;
    if (a.mean != nullptr) {
      mean = sum_of(d, a.columns, load_x) / static_cast<T>(a.columns);
      static_cast<T*>(a.mean)[row] = mean;
    }
    const auto means = hn::Set(d, mean);
    const T squares = sum_of(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
      const auto centered = hn::Sub(load_x(i, span), means);
      return hn::Mul(centered, centered);
    });
    const T rstd = 1 / std::sqrt(squares / static_cast<T>(a.columns) + static_cast<T>(a.eps));
    static_cast<T*>(a.rstd)[row] = rstd;
    Bits* const output = static_cast<Bits*>(a.output) + row * a.columns;
    for_each_vector(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
      auto y = hn::Mul(hn::Sub(load_x(i, span), means), hn::Set(d, rstd));
      if (!weight.empty()) y = hn::Mul(y, load(d, WideType<Type>(), weight.data() + i, span));
      if (!bias.empty()) y = hn::Add(y, load(d, WideType<Type>(), bias.data() + i, span));
      store(d, type, y, output + i, span);
    });
  }
}

/// Holds what one row's backward needs besides its arrays.
template <class Type>
struct NormRow {
  const BitsOf<Type>* grad_output;
  const BitsOf<Type>* values;  // the sum, or the output
  Wide<Type> mean, rstd;
  const Wide<Type>*weight, *bias;  // `bias` is set if values are the output
};

/// Returns the normalized elements of a row from `i` on. With `is_output` they are (value - bias) / weight,
/// otherwise (value - mean) * rstd.
template <class Type, class D, class Span>
HWY_INLINE hn::Vec<D> normalized(D d, Type type, const NormRow<Type>& row, bool is_output, int64_t i,
                                 Span span) {
  const auto values = load(d, type, row.values + i, span);
  if (!is_output) return hn::Mul(hn::Sub(values, hn::Set(d, row.mean)), hn::Set(d, row.rstd));
  const auto centered =
      row.bias == nullptr ? values : hn::Sub(values, load(d, WideType<Type>(), row.bias + i, span));
  return row.weight == nullptr ? centered
                               : hn::Div(centered, load(d, WideType<Type>(), row.weight + i, span));
}

/// Returns grad * weight, for the elements from `i` on.
template <class Type, class D, class Span>
HWY_INLINE hn::Vec<D> weighted(D d, const NormRow<Type>& row, hn::Vec<D> grad, int64_t i, Span span) {
  return row.weight == nullptr ? grad : hn::Mul(grad, load(d, WideType<Type>(), row.weight + i, span));
}

/// Computes a row's gradient: rstd (g - mean(g) - n mean(g n)). g is grad_output * weight and n the
/// normalized row; RMS norm has no mean(g). Adds `grad_sum`, and adds the row's share to `weight_sums` and
/// `bias_sums`. These three may be null.
template <class Type, bool kIsOutput>
HWY_INLINE void norm_backward_row(Type type, const NormBackwardArrays& a, const NormRow<Type>& row,
                                  const BitsOf<Type>* HWY_RESTRICT grad_sum,
                                  BitsOf<Type>* HWY_RESTRICT grad_input, Wide<Type>* HWY_RESTRICT weight_sums,
                                  Wide<Type>* HWY_RESTRICT bias_sums) {
  using T = Wide<Type>;
  const WideTag<Type> d;
  const WideType<Type> wide;
  auto sum = hn::Zero(d), product_sum = hn::Zero(d);
  for_each_vector(d, a.rows.columns, [&](int64_t i, auto span) HWY_ATTR {
    const auto grad = load(d, type, row.grad_output + i, span);
    // Beyond the end grad is 0, but n may be nan (0 / 0).
    const auto n = with_rest(d, normalized(d, type, row, kIsOutput, i, span), span, hn::Zero(d));
    const auto g = weighted(d, row, grad, i, span);
    sum = hn::Add(sum, g);
    product_sum = hn::MulAdd(g, n, product_sum);
    if (weight_sums != nullptr) {
      store(d, wide, hn::MulAdd(grad, n, load(d, wide, weight_sums + i, span)), weight_sums + i, span);
    }
    if (bias_sums != nullptr) {
      store(d, wide, hn::Add(grad, load(d, wide, bias_sums + i, span)), bias_sums + i, span);
    }
  });
  const auto columns = static_cast<T>(a.rows.columns);
  const auto mean = hn::Set(d, a.is_rms ? T(0) : hn::GetLane(hn::SumOfLanes(d, sum)) / columns);
  const auto product_mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, product_sum)) / columns);
  const auto rstd = hn::Set(d, row.rstd);
  for_each_vector(d, a.rows.columns, [&](int64_t i, auto span) HWY_ATTR {
    const auto g = weighted(d, row, load(d, type, row.grad_output + i, span), i, span);
    const auto n = normalized(d, type, row, kIsOutput, i, span);
    auto result = hn::Mul(rstd, hn::Sub(hn::Sub(g, mean), hn::Mul(n, product_mean)));
    if (grad_sum != nullptr) result = hn::Add(result, load(d, type, grad_sum + i, span));
    store(d, type, result, grad_input + i, span);
  });
}

template <class Type, bool kIsOutput>
void norm_backward_part(Type type, const NormBackwardArrays& a, int64_t part) {
  using T = Wide<Type>;
  using Bits = BitsOf<Type>;
  const int64_t columns = a.rows.columns;
  const auto weight = widened<Type>(a.weight, a.parameter_type, columns);
  const auto bias = kIsOutput ? widened<Type>(a.bias, a.parameter_type, columns) : std::vector<T>();
  const auto sums_of_part = [&](void* parts) -> T* {
    if (parts == nullptr) return nullptr;
    T* const sums = static_cast<T*>(parts) + part * columns;
    std::fill_n(sums, columns, T(0));
    return sums;
  };
  T* const weight_sums = sums_of_part(a.weight_parts);
  T* const bias_sums = sums_of_part(a.bias_parts);
  const void* const values = kIsOutput ? a.output : a.sum;
  for (int64_t row = first_row(a.rows, part); row < first_row(a.rows, part + 1); ++row) {
    const auto row_of = [&](const void* array) { return static_cast<const Bits*>(array) + row * columns; };
    const NormRow<Type> given{row_of(a.grad_output),
                              row_of(values),
                              a.mean == nullptr ? T(0) : static_cast<const T*>(a.mean)[row],
                              static_cast<const T*>(a.rstd)[row],
                              weight.empty() ? nullptr : weight.data(),
                              bias.empty() ? nullptr : bias.data()};
    norm_backward_row<Type, kIsOutput>(type, a, given, a.grad_sum == nullptr ? nullptr : row_of(a.grad_sum),
                                       static_cast<Bits*>(a.grad_input) + row * columns, weight_sums,
                                       bias_sums);
  }
}

void norm_of_target(const NormArrays& arrays, int64_t begin, int64_t end) {
  with_type(arrays.type, [&](auto type) HWY_ATTR { norm_rows(type, arrays, begin, end); });
}

void norm_backward_of_target(const NormBackwardArrays& arrays, int64_t part) {
  with_type(arrays.type, [&](auto type) HWY_ATTR {
    if (arrays.output != nullptr) {
      norm_backward_part<decltype(type), true>(type, arrays, part);
    } else {
      norm_backward_part<decltype(type), false>(type, arrays, part);
    }
  });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(norm_of_target);
HWY_EXPORT(norm_backward_of_target);

void norm_simd(const NormArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(norm_of_target)(arrays, begin, end);
}

void norm_backward_simd(const NormBackwardArrays& arrays, int64_t part) {
  HWY_DYNAMIC_DISPATCH(norm_backward_of_target)(arrays, part);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
