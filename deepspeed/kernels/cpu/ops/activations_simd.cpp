// Activations with vectors of each instruction set. Highway compiles the part before HWY_ONCE once for each;
// the functions behind it choose the processor's own at run time. Rows are read in vectors of a wider type,
// and each element is computed once. The backward of bias + GELU adds the bias's gradient into `sums`.
#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "deepspeed/kernels/cpu/ops/activations_simd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "deepspeed/kernels/cpu/ops/op_vectors-inl.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepspeed::kernels::HWY_NAMESPACE {

constexpr double kTwoSqrt2OverPi = 1.5957691216057308;
constexpr double kCubic = 0.044715;

/// Returns GELU(x) / x = sigmoid(2 u), with u = sqrt(2/pi) (x + 0.044715 x^3).
template <class D>
HWY_INLINE hn::Vec<D> gelu_sigmoid(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto cube = hn::Mul(hn::Mul(x, x), x);
  const auto inner = hn::MulAdd(hn::Set(d, static_cast<T>(kCubic)), cube, x);
  return sigmoid(d, hn::Mul(hn::Set(d, static_cast<T>(kTwoSqrt2OverPi)), inner));
}

/// Returns the derivative of GELU. With s = gelu_sigmoid(x) and its u, it is s + x s (1 - s) 2 u'.
template <class D>
HWY_INLINE hn::Vec<D> gelu_derivative(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T(1));
  const auto s = gelu_sigmoid(d, x);
  const auto inner = hn::MulAdd(hn::Set(d, static_cast<T>(3 * kCubic)), hn::Mul(x, x), one);
  const auto slope = hn::Mul(hn::Set(d, static_cast<T>(kTwoSqrt2OverPi)), inner);
  return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Sub(one, s)), slope, s);
}

/// Calls body(index, column, span, x) for the vectors of the elements [begin, end). `span` is Full or Part,
/// and x is input + bias.
template <class Type, class Body>
HWY_INLINE void for_each_biased(Type type, const BiasGeluArrays& a, int64_t begin, int64_t end,
                                const Body& body) {
  const WideTag<Type> d;
  const auto bias = widened<Type>(a.bias, a.parameter_type, a.rows.columns);
  const auto* const input = static_cast<const BitsOf<Type>*>(a.input);
  for_each_row_piece(a.rows.columns, begin, end, [&](int64_t first, int64_t column, int64_t count) HWY_ATTR {
    for_each_vector(d, count, [&](int64_t i, auto span) HWY_ATTR {
      auto x = load(d, type, input + first + i, span);
      if (!bias.empty()) x = hn::Add(x, load(d, WideType<Type>(), bias.data() + column + i, span));
      body(first + i, column + i, span, x);
    });
  });
}

void bias_gelu_of_target(const BiasGeluArrays& a, int64_t begin, int64_t end) {
  with_type(a.type, [&](auto type) HWY_ATTR {
    using Type = decltype(type);
    const WideTag<Type> d;
    auto* const output = static_cast<BitsOf<Type>*>(a.output);
    for_each_biased(type, a, begin, end, [&](int64_t index, int64_t, auto span, auto x) HWY_ATTR {
      store(d, type, hn::Mul(x, gelu_sigmoid(d, x)), output + index, span);
    });
  });
}

void bias_gelu_backward_of_target(const BiasGeluArrays& a, int64_t begin, int64_t end, void* sums) {
  with_type(a.type, [&](auto type) HWY_ATTR {
    using Type = decltype(type);
    const WideTag<Type> d;
    const WideType<Type> wide;
    const auto* const grad_output = static_cast<const BitsOf<Type>*>(a.grad_output);
    auto* const grad_input = static_cast<BitsOf<Type>*>(a.output);
    auto* const bias_sums = static_cast<Wide<Type>*>(sums);
    for_each_biased(type, a, begin, end, [&](int64_t index, int64_t column, auto span, auto x) HWY_ATTR {
      const auto grad = hn::Mul(load(d, type, grad_output + index, span), gelu_derivative(d, x));
      store(d, type, grad, grad_input + index, span);
      if (bias_sums == nullptr) return;
      store(d, wide, hn::Add(load(d, wide, bias_sums + column, span), grad), bias_sums + column, span);
    });
  });
}

/// Holds the addresses of one row of `gate` and `up`.
template <class Type>
struct SwigluRow {
  SwigluRow(const SwigluArrays& a, int64_t row)
      : gate(static_cast<const BitsOf<Type>*>(a.gate) + row * a.gate_stride),
        up(static_cast<const BitsOf<Type>*>(a.up) + row * a.up_stride) {}
  const BitsOf<Type>*gate, *up;
};

void swiglu_of_target(const SwigluArrays& a, int64_t begin, int64_t end) {
  with_type(a.type, [&](auto type) HWY_ATTR {
    using Type = decltype(type);
    const WideTag<Type> d;
    for (int64_t r = begin; r < end; ++r) {
      const SwigluRow<Type> row(a, r);
      auto* const output = static_cast<BitsOf<Type>*>(a.output) + r * a.columns;
      for_each_vector(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
        const auto gate = load(d, type, row.gate + i, span);
        const auto silu = hn::Mul(gate, sigmoid(d, gate));
        store(d, type, hn::Mul(silu, load(d, type, row.up + i, span)), output + i, span);
      });
    }
  });
}

/// Computes the gradients of gate and up. With s = sigmoid(gate) they are grad up s (1 + gate (1 - s)) and
/// grad gate s.
void swiglu_backward_of_target(const SwigluArrays& a, int64_t begin, int64_t end) {
  with_type(a.type, [&](auto type) HWY_ATTR {
    using Type = decltype(type);
    const WideTag<Type> d;
    const auto one = hn::Set(d, 1);
    for (int64_t r = begin; r < end; ++r) {
      const SwigluRow<Type> row(a, r);
      const auto* const grad_output = static_cast<const BitsOf<Type>*>(a.grad_output) + r * a.columns;
      auto* const grad_gate = static_cast<BitsOf<Type>*>(a.grad_gate) + r * a.grad_gate_stride;
      auto* const grad_up = static_cast<BitsOf<Type>*>(a.grad_up) + r * a.grad_up_stride;
      for_each_vector(d, a.columns, [&](int64_t i, auto span) HWY_ATTR {
        const auto gate = load(d, type, row.gate + i, span), up = load(d, type, row.up + i, span);
        const auto grad = load(d, type, grad_output + i, span);
        const auto s = sigmoid(d, gate);
        const auto slope = hn::Mul(s, hn::MulAdd(gate, hn::Sub(one, s), one));
        store(d, type, hn::Mul(hn::Mul(grad, up), slope), grad_gate + i, span);
        store(d, type, hn::Mul(grad, hn::Mul(gate, s)), grad_up + i, span);
      });
    }
  });
}

}  // namespace deepspeed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepspeed::kernels {

HWY_EXPORT(bias_gelu_of_target);
HWY_EXPORT(bias_gelu_backward_of_target);
HWY_EXPORT(swiglu_of_target);
HWY_EXPORT(swiglu_backward_of_target);

void bias_gelu_simd(const BiasGeluArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(bias_gelu_of_target)(arrays, begin, end);
}

void bias_gelu_backward_simd(const BiasGeluArrays& arrays, int64_t begin, int64_t end, void* sums) {
  HWY_DYNAMIC_DISPATCH(bias_gelu_backward_of_target)(arrays, begin, end, sums);
}

void swiglu_simd(const SwigluArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(swiglu_of_target)(arrays, begin, end);
}

void swiglu_backward_simd(const SwigluArrays& arrays, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward_of_target)(arrays, begin, end);
}

}  // namespace deepspeed::kernels
#endif  // HWY_ONCE
