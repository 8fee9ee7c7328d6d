#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

constexpr double kTwoSqrt2OverPi = 1.5957691216057308;
constexpr double kCubic = 0.044715;

/// Returns GELU(x) / x = sigmoid(2 u), with u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
__device__ Wide<T> gelu_sigmoid(Wide<T> x) {
  using W = Wide<T>;
  const W linear = W(-kLog2OfE * kTwoSqrt2OverPi), cubic = W(-kLog2OfE * kTwoSqrt2OverPi * kCubic);
  return inverse_for<T>(W(1) + exp2_for<T>(x * (linear + cubic * (x * x))));
}

/// Returns the derivative of GELU. With s = gelu_sigmoid(x) and its u, it is s + x s (1 - s) 2 u'.
template <class T>
__device__ Wide<T> gelu_derivative(Wide<T> x) {
  using W = Wide<T>;
  const W s = gelu_sigmoid<T>(x);
  return s + x * s * (W(1) - s) * (W(kTwoSqrt2OverPi) + W(kTwoSqrt2OverPi * 3 * kCubic) * (x * x));
}

/// Loads the biases of kWidth columns from `column` on, or zeros without a bias.
template <class T, int kWidth>
__device__ void load_bias(const BiasGeluArrays& a, int64_t column, Wide<T> (&bias)[kWidth]) {
  if (a.bias != nullptr) return load_parameters<T>(a.bias, a.parameter_type, column, bias);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) bias[k] = 0;
}

/// Loads the inputs from element `i` on and adds their biases.
template <class T, int kWidth>
__device__ void load_biased(const BiasGeluArrays& a, int64_t i, const Wide<T> (&bias)[kWidth],
                            Wide<T> (&x)[kWidth]) {
  load_wide(static_cast<const T*>(a.input) + i, x);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) x[k] += bias[k];
}

template <class T, int kWidth, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) bias_gelu_kernel(BiasGeluArrays a) {
  for_each_in_segments<TheTeam>(a.rows.rows, a.rows.columns, kWidth, [&](int64_t row, int64_t column) {
    const int64_t i = row * a.rows.columns + column;
    Wide<T> bias[kWidth], x[kWidth];
    load_bias<T>(a, column, bias);
    load_biased<T>(a, i, bias, x);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] *= gelu_sigmoid<T>(x[k]);
    store_pack(rounded<T>(x), static_cast<T*>(a.output) + i);
  });
}

/// Writes the input's gradients from element `i` on. Adds them to `sums`, the bias's gradient.
template <class T, int kWidth>
__device__ void write_gelu_gradients(const BiasGeluArrays& a, int64_t i, const Wide<T> (&bias)[kWidth],
                                     Wide<T> (&sums)[kWidth]) {
  Wide<T> x[kWidth], grad[kWidth];
  load_biased<T>(a, i, bias, x);
  load_wide(static_cast<const T*>(a.grad_output) + i, grad);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    grad[k] *= gelu_derivative<T>(x[k]);
    sums[k] += grad[k];
  }
  store_pack(rounded<T>(grad), static_cast<T*>(a.output) + i);
}

template <class T, int kWidth, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) gelu_backward_kernel(BiasGeluArrays a) {
  for_each_in_segments<TheTeam>(a.rows.rows, a.rows.columns, kWidth, [&](int64_t row, int64_t column) {
    Wide<T> bias[kWidth], unused[kWidth] = {};
    load_bias<T>(a, column, bias);
    write_gelu_gradients<T>(a, row * a.rows.columns + column, bias, unused);
  });
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kOpThreads) bias_gelu_backward_kernel(BiasGeluArrays a) {
  const PartColumns at(a.rows, kWidth);
  if (at.column >= a.rows.columns) return;
  Wide<T> bias[kWidth], sums[kWidth] = {};
  load_bias<T>(a, at.column, bias);
  const int64_t end = first_row(a.rows, at.part + 1);
  for (int64_t row = first_row(a.rows, at.part); row < end; ++row) {
    write_gelu_gradients<T>(a, row * a.rows.columns + at.column, bias, sums);
  }
  Wide<T>* const parts = static_cast<Wide<T>*>(a.bias_parts) + at.part * a.rows.columns + at.column;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) parts[k] = sums[k];
}

template <class T, int kWidth, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) swiglu_kernel(SwigluArrays a) {
  for_each_in_segments<TheTeam>(a.rows, a.columns, kWidth, [&](int64_t row, int64_t column) {
    Wide<T> gate[kWidth], up[kWidth];
    load_wide(static_cast<const T*>(a.gate) + row * a.gate_stride + column, gate);
    load_wide(static_cast<const T*>(a.up) + row * a.up_stride + column, up);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) up[k] *= gate[k] * sigmoid_for<T>(gate[k]);
    store_pack(rounded<T>(up), static_cast<T*>(a.output) + row * a.columns + column);
  });
}

template <class T, int kWidth, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) swiglu_backward_kernel(SwigluArrays a) {
  for_each_in_segments<TheTeam>(a.rows, a.columns, kWidth, [&](int64_t row, int64_t column) {
    using W = Wide<T>;
    W gate[kWidth], up[kWidth], grad[kWidth];
    load_wide(static_cast<const T*>(a.gate) + row * a.gate_stride + column, gate);
    load_wide(static_cast<const T*>(a.up) + row * a.up_stride + column, up);
    load_wide(static_cast<const T*>(a.grad_output) + row * a.columns + column, grad);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const W s = sigmoid_for<T>(gate[k]);
      up[k] = grad[k] * up[k] * (s * (W(1) + gate[k] * (W(1) - s)));
      grad[k] *= gate[k] * s;
    }
    store_pack(rounded<T>(up), static_cast<T*>(a.grad_gate) + row * a.grad_gate_stride + column);
    store_pack(rounded<T>(grad), static_cast<T*>(a.grad_up) + row * a.grad_up_stride + column);
  });
}

}  // namespace

template <>
cudaError_t launch(const BiasGeluArrays& arrays, cudaStream_t stream) {
  const RowParts& rows = arrays.rows;
  const bool packed =
      are_packed(arrays.type, {rows.columns}, {arrays.input, arrays.bias, arrays.grad_output, arrays.output});
  if (arrays.backward && arrays.bias_parts != nullptr) {
    return with_width(arrays.type, packed, [&](auto element, auto width) {
      return launch_kernel(&bias_gelu_backward_kernel<decltype(element), width()>,
                           parts_shape(rows, width(), stream), arrays);
    });
  }
  return with_team(arrays.type, rows.columns, packed, [&](auto element, auto width, auto team) {
    auto* const kernel = arrays.backward ? &gelu_backward_kernel<decltype(element), width(), decltype(team)>
                                         : &bias_gelu_kernel<decltype(element), width(), decltype(team)>;
    return launch_kernel(kernel, segment_shape(rows.rows, rows.columns, decltype(team)::kThreads, stream),
                         arrays);
  });
}

template <>
cudaError_t launch(const SwigluArrays& arrays, cudaStream_t stream) {
  const bool packed = are_packed(
      arrays.type,
      {arrays.columns, arrays.gate_stride, arrays.up_stride, arrays.grad_gate_stride, arrays.grad_up_stride},
      {arrays.gate, arrays.up, arrays.output, arrays.grad_output, arrays.grad_gate, arrays.grad_up});
  return with_team(arrays.type, arrays.columns, packed, [&](auto element, auto width, auto team) {
    auto* const kernel = arrays.backward ? &swiglu_backward_kernel<decltype(element), width(), decltype(team)>
                                         : &swiglu_kernel<decltype(element), width(), decltype(team)>;
    return launch_kernel(kernel, segment_shape(arrays.rows, arrays.columns, decltype(team)::kThreads, stream),
                         arrays);
  });
}

}  // namespace deepspeed::kernels
