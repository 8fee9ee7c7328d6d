#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

constexpr double kTwoSqrt2OverPi = 1.5957691216057308;
constexpr double kCubic = 0.044715;

/// Returns the sigmoid whose product with x is GELU: (1 + tanh(u)) / 2 is sigmoid(2 u).
template <class W>
__device__ W gelu_sigmoid(W x) {
  return sigmoid(W(kTwoSqrt2OverPi) * (x + W(kCubic) * (x * x * x)));
}

/// Returns s + x s (1 - s) 2 u', with s = sigmoid(2 u).
template <class W>
__device__ W gelu_derivative(W x) {
  const W s = gelu_sigmoid(x);
  return s + x * s * (W(1) - s) * (W(kTwoSqrt2OverPi) * (W(1) + W(3 * kCubic) * (x * x)));
}

template <class T>
__device__ Wide<T> biased(const BiasGeluArrays& a, int64_t row, int64_t column) {
  const Wide<T> x = to_float(static_cast<const T*>(a.input)[row * a.rows.columns + column]);
  return a.bias == nullptr ? x : x + parameter_at<T>(a.bias, a.parameter_type, column);
}

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) bias_gelu_kernel(BiasGeluArrays a) {
  for_each_in_segments<TheTeam>(a.rows.rows, a.rows.columns, 1, [&](int64_t row, int64_t column) {
    const Wide<T> x = biased<T>(a, row, column);
    round_to(x * gelu_sigmoid(x), static_cast<T*>(a.output)[row * a.rows.columns + column]);
  });
}

template <class T>
__device__ Wide<T> write_gelu_gradient(const BiasGeluArrays& a, int64_t row, int64_t column) {
  const int64_t i = row * a.rows.columns + column;
  const Wide<T> grad =
      to_float(static_cast<const T*>(a.grad_output)[i]) * gelu_derivative(biased<T>(a, row, column));
  round_to(grad, static_cast<T*>(a.output)[i]);
  return grad;
}

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) gelu_backward_kernel(BiasGeluArrays a) {
  for_each_in_segments<TheTeam>(a.rows.rows, a.rows.columns, 1,
                                [&](int64_t row, int64_t column) { write_gelu_gradient<T>(a, row, column); });
}

template <class T>
__global__ void __launch_bounds__(kOpThreads) bias_gelu_backward_kernel(BiasGeluArrays a) {
  const PartColumns at(a.rows, 1);
  if (at.column >= a.rows.columns) return;
  Wide<T> sum = 0;
  const int64_t end = first_row(a.rows, at.part + 1);
  for (int64_t row = first_row(a.rows, at.part); row < end; ++row)
    sum += write_gelu_gradient<T>(a, row, at.column);
  static_cast<Wide<T>*>(a.bias_parts)[at.part * a.rows.columns + at.column] = sum;
}

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) swiglu_kernel(SwigluArrays a) {
  for_each_in_segments<TheTeam>(a.rows, a.columns, 1, [&](int64_t row, int64_t column) {
    const Wide<T> gate = to_float(static_cast<const T*>(a.gate)[row * a.gate_stride + column]);
    const Wide<T> up = to_float(static_cast<const T*>(a.up)[row * a.up_stride + column]);
    round_to(gate * sigmoid(gate) * up, static_cast<T*>(a.output)[row * a.columns + column]);
  });
}

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) swiglu_backward_kernel(SwigluArrays a) {
  for_each_in_segments<TheTeam>(a.rows, a.columns, 1, [&](int64_t row, int64_t column) {
    using W = Wide<T>;
    const W gate = to_float(static_cast<const T*>(a.gate)[row * a.gate_stride + column]);
    const W up = to_float(static_cast<const T*>(a.up)[row * a.up_stride + column]);
    const W grad = to_float(static_cast<const T*>(a.grad_output)[row * a.columns + column]);
    const W s = sigmoid(gate);
    round_to(grad * up * (s * (W(1) + gate * (W(1) - s))),
             static_cast<T*>(a.grad_gate)[row * a.grad_gate_stride + column]);
    round_to(grad * (gate * s), static_cast<T*>(a.grad_up)[row * a.grad_up_stride + column]);
  });
}

}  // namespace

cudaError_t launch_bias_gelu(const BiasGeluArrays& arrays, cudaStream_t stream) {
  const RowParts& rows = arrays.rows;
  return with_team(arrays.type, rows.columns, [&](auto element, auto team) {
    return launch_kernel(&bias_gelu_kernel<decltype(element), decltype(team)>,
                         segment_shape(rows.rows, rows.columns, decltype(team)::kThreads, stream), arrays);
  });
}

cudaError_t launch_bias_gelu_backward(const BiasGeluArrays& arrays, cudaStream_t stream) {
  const RowParts& rows = arrays.rows;
  if (arrays.bias_parts != nullptr) {
    return with_stored_type(arrays.type, [&](auto element) {
      return launch_kernel(&bias_gelu_backward_kernel<decltype(element)>, parts_shape(rows, 1, stream),
                           arrays);
    });
  }
  return with_team(arrays.type, rows.columns, [&](auto element, auto team) {
    return launch_kernel(&gelu_backward_kernel<decltype(element), decltype(team)>,
                         segment_shape(rows.rows, rows.columns, decltype(team)::kThreads, stream), arrays);
  });
}

cudaError_t launch_swiglu(const SwigluArrays& arrays, cudaStream_t stream) {
  return with_team(arrays.type, arrays.columns, [&](auto element, auto team) {
    return launch_kernel(&swiglu_kernel<decltype(element), decltype(team)>,
                         segment_shape(arrays.rows, arrays.columns, decltype(team)::kThreads, stream),
                         arrays);
  });
}

cudaError_t launch_swiglu_backward(const SwigluArrays& arrays, cudaStream_t stream) {
  return with_team(arrays.type, arrays.columns, [&](auto element, auto team) {
    return launch_kernel(&swiglu_backward_kernel<decltype(element), decltype(team)>,
                         segment_shape(arrays.rows, arrays.columns, decltype(team)::kThreads, stream),
                         arrays);
  });
}

}  // namespace deepspeed::kernels
