// A team normalizes a row. Sums over rows, for the gradients of weight and bias, are a kernel of their own: a
// thread adds up a column of a part.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) norm_kernel(NormArrays a) {
  using W = Wide<T>;
  for (int64_t row = TheTeam::first(); row < a.rows; row += TheTeam::count()) {
    const T* x = static_cast<const T*>(a.input) + row * a.columns;
    if (a.residual != nullptr) {
      const T* const residual = static_cast<const T*>(a.residual) + row * a.columns;
      T* const sum = static_cast<T*>(a.sum) + row * a.columns;
      for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) {
        round_to(add_rn(to_float(x[i]), to_float(residual[i])), sum[i]);
      }
      x = sum;  // of which each thread reads what it has written
    }
    W mean = 0;
    if (a.mean != nullptr) {
      W sum = 0;
      for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) sum += to_float(x[i]);
      mean = TheTeam::sum(sum) / W(a.columns);
      if (TheTeam::lane() == 0) static_cast<W*>(a.mean)[row] = mean;
    }
    W squares = 0;
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) {
      const W centered = to_float(x[i]) - mean;
      squares += centered * centered;
    }
    const W rstd = W(1) / sqrt(TheTeam::sum(squares) / W(a.columns) + W(a.eps));
    if (TheTeam::lane() == 0) static_cast<W*>(a.rstd)[row] = rstd;
    T* const output = static_cast<T*>(a.output) + row * a.columns;
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) {
      W y = (to_float(x[i]) - mean) * rstd;
      if (a.weight != nullptr) y *= parameter_at<T>(a.weight, a.parameter_type, i);
      if (a.bias != nullptr) y += parameter_at<T>(a.bias, a.parameter_type, i);
      round_to(y, output[i]);
    }
  }
}

/// The normalized elements of one row.
template <class T>
struct NormalizedRow {
  __device__ NormalizedRow(const NormBackwardArrays& arrays, int64_t row)
      : a(arrays),
        values(static_cast<const T*>(a.output != nullptr ? a.output : a.sum) + row * a.rows.columns),
        mean(a.mean == nullptr ? Wide<T>(0) : static_cast<const Wide<T>*>(a.mean)[row]),
        rstd(static_cast<const Wide<T>*>(a.rstd)[row]) {}

  __device__ Wide<T> weight(int64_t i) const {
    return a.weight == nullptr ? Wide<T>(1) : parameter_at<T>(a.weight, a.parameter_type, i);
  }
  __device__ Wide<T> at(int64_t i) const {
    const Wide<T> value = to_float(values[i]);
    if (a.output == nullptr) return (value - mean) * rstd;
    return (a.bias == nullptr ? value : value - parameter_at<T>(a.bias, a.parameter_type, i)) / weight(i);
  }

  const NormBackwardArrays& a;
  const T* values;
  Wide<T> mean, rstd;
};

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) norm_backward_kernel(NormBackwardArrays a) {
  using W = Wide<T>;
  const int64_t columns = a.rows.columns;
  for (int64_t row = TheTeam::first(); row < a.rows.rows; row += TheTeam::count()) {
    const NormalizedRow<T> normalized(a, row);
    const T* const grad = static_cast<const T*>(a.grad_output) + row * columns;
    const T* const grad_sum = static_cast<const T*>(a.grad_sum) + (a.grad_sum == nullptr ? 0 : row * columns);
    T* const grad_input = static_cast<T*>(a.grad_input) + row * columns;
    W sum = 0, products = 0;
    for (int64_t i = TheTeam::lane(); i < columns; i += TheTeam::kThreads) {
      const W g = to_float(grad[i]) * normalized.weight(i);
      sum += g;
      products += g * normalized.at(i);
    }
    const W mean = a.is_rms ? W(0) : TheTeam::sum(sum) / W(columns);
    const W product_mean = TheTeam::sum(products) / W(columns);
    for (int64_t i = TheTeam::lane(); i < columns; i += TheTeam::kThreads) {
      const W g = to_float(grad[i]) * normalized.weight(i);
      W result = normalized.rstd * (g - mean - normalized.at(i) * product_mean);
      if (a.grad_sum != nullptr) result += to_float(grad_sum[i]);
      round_to(result, grad_input[i]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kOpThreads) norm_parameters_kernel(NormBackwardArrays a) {
  using W = Wide<T>;
  const PartColumns at(a.rows, 1);
  if (at.column >= a.rows.columns) return;
  W weight_sum = 0, bias_sum = 0;
  const int64_t end = first_row(a.rows, at.part + 1);
  for (int64_t row = first_row(a.rows, at.part); row < end; ++row) {
    const W grad = to_float(static_cast<const T*>(a.grad_output)[row * a.rows.columns + at.column]);
    bias_sum += grad;
    if (a.weight_parts != nullptr) weight_sum += grad * NormalizedRow<T>(a, row).at(at.column);
  }
  const int64_t entry = at.part * a.rows.columns + at.column;
  if (a.weight_parts != nullptr) static_cast<W*>(a.weight_parts)[entry] = weight_sum;
  if (a.bias_parts != nullptr) static_cast<W*>(a.bias_parts)[entry] = bias_sum;
}

}  // namespace

cudaError_t launch_norm(const NormArrays& arrays, cudaStream_t stream) {
  return with_team(arrays.type, arrays.columns, [&](auto element, auto team) {
    return launch_kernel(&norm_kernel<decltype(element), decltype(team)>,
                         team_shape(arrays.rows, decltype(team)::kThreads, stream), arrays);
  });
}

cudaError_t launch_norm_backward(const NormBackwardArrays& arrays, cudaStream_t stream) {
  const cudaError_t status = with_team(arrays.type, arrays.rows.columns, [&](auto element, auto team) {
    return launch_kernel(&norm_backward_kernel<decltype(element), decltype(team)>,
                         team_shape(arrays.rows.rows, decltype(team)::kThreads, stream), arrays);
  });
  if (status != cudaSuccess || (arrays.weight_parts == nullptr && arrays.bias_parts == nullptr))
    return status;
  return with_stored_type(arrays.type, [&](auto element) {
    return launch_kernel(&norm_parameters_kernel<decltype(element)>, parts_shape(arrays.rows, 1, stream),
                         arrays);
  });
}

}  // namespace deepspeed::kernels
