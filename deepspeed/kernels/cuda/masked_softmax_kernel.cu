// A thread reads and writes columns of its own in each of three passes over the row, so output and input may
// be one array.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) masked_softmax_kernel(MaskedSoftmaxArrays a) {
  using W = Wide<T>;
  for (int64_t row = TheTeam::first(); row < a.rows; row += TheTeam::count()) {
    const T* const scores = static_cast<const T*>(a.scores) + row * a.columns;
    T* const output = static_cast<T*>(a.output) + row * a.columns;
    const int64_t of_mask = a.mask == nullptr ? 0 : mask_offset(a, row);
    const auto masked = [&](int64_t i) {
      const W x = mul_rn(W(to_float(scores[i])), W(a.scale));
      return a.mask == nullptr ? x : add_rn(x, parameter_at<T>(a.mask, a.mask_type, of_mask + i));
    };
    W largest = -W(INFINITY);
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) {
      const W x = masked(i);
      largest = x > largest ? x : largest;
    }
    largest = TheTeam::largest(largest);
    W sum = 0;
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) sum += exp(masked(i) - largest);
    const W inverse = W(1) / TheTeam::sum(sum);
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) {
      round_to(exp(masked(i) - largest) * inverse, output[i]);
    }
  }
}

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) softmax_backward_kernel(SoftmaxBackwardArrays a) {
  using W = Wide<T>;
  for (int64_t row = TheTeam::first(); row < a.rows; row += TheTeam::count()) {
    const T* const grad = static_cast<const T*>(a.grad_output) + row * a.columns;
    const T* const y = static_cast<const T*>(a.output) + row * a.columns;
    T* const grad_input = static_cast<T*>(a.grad_input) + row * a.columns;
    W dot = 0;
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads)
      dot += to_float(grad[i]) * to_float(y[i]);
    dot = TheTeam::sum(dot);
    for (int64_t i = TheTeam::lane(); i < a.columns; i += TheTeam::kThreads) {
      round_to(W(a.scale) * (to_float(y[i]) * (to_float(grad[i]) - dot)), grad_input[i]);
    }
  }
}

}  // namespace

cudaError_t launch_masked_softmax(const MaskedSoftmaxArrays& arrays, cudaStream_t stream) {
  return with_team(arrays.type, arrays.columns, [&](auto element, auto team) {
    return launch_kernel(&masked_softmax_kernel<decltype(element), decltype(team)>,
                         team_shape(arrays.rows, decltype(team)::kThreads, stream), arrays);
  });
}

cudaError_t launch_softmax_backward(const SoftmaxBackwardArrays& arrays, cudaStream_t stream) {
  return with_team(arrays.type, arrays.columns, [&](auto element, auto team) {
    return launch_kernel(&softmax_backward_kernel<decltype(element), decltype(team)>,
                         team_shape(arrays.rows, decltype(team)::kThreads, stream), arrays);
  });
}

}  // namespace deepspeed::kernels
