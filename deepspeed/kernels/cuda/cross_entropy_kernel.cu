// A block takes a row in two passes. The first pass finds the largest logit and the sum of exponentials
// together: each thread's sum is relative to the largest logit that it has seen. The second pass writes the
// gradient over the logits. Between the passes Block::sum() and Block::largest() combine the threads'
// results; their barriers separate the passes.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

using Block = Team<kOpThreads>;

/// Sums exponentials relative to the largest number so far (Milakov and Gimelshein, arXiv 1805.02867).
template <class T>
struct OnlineSum {
  using W = Wide<T>;

  template <int kWidth>
  __device__ void add(const W (&values)[kWidth]) {
    W most = largest;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) most = values[k] > most ? values[k] : most;
    if (most > largest) {
      sum *= exp_for<T>(largest - most);
      largest = most;
    }
    const W base = largest == -W(INFINITY) ? W(0) : largest;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum += exp_for<T>(values[k] - base);
  }

  W largest = -W(INFINITY), sum = 0;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kOpThreads) cross_entropy_kernel(CrossEntropyArrays a) {
  using W = Wide<T>;
  const W smoothing = W(a.label_smoothing), share = smoothing / W(a.columns);
  // Calls body(column) for this thread's columns.
  const auto for_each_column = [&](const auto& body) {
    for (int64_t i = int64_t{Block::lane()} * kWidth; i < a.columns; i += kOpThreads * kWidth) body(i);
  };
  for (int64_t row = Block::first(); row < a.rows; row += Block::count()) {
    T* const x = static_cast<T*>(a.logits) + row * a.columns;
    const int64_t target = a.targets[row];
    const bool is_ignored = target == a.ignore_index, is_class = target >= 0 && target < a.columns;
    if (is_ignored || !is_class) {  // the same for all threads of the block
      const W rest = is_ignored ? W(0) : W(NAN);
      if (Block::lane() == 0) static_cast<W*>(a.losses)[row] = rest;
      if (a.row_gradients == nullptr) continue;
      W values[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = rest;
      for_each_column([&](int64_t i) { store_pack(rounded<T>(values), x + i); });
      continue;
    }
    const W at_target = to_float(x[target]);
    OnlineSum<T> of_thread;
    W total = 0;
    for_each_column([&](int64_t i) {
      W values[kWidth];
      load_wide(x + i, values);
      of_thread.add(values);
      if (smoothing == 0) return;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) total += values[k];
    });
    const W largest = Block::largest(of_thread.largest);
    const W mean = smoothing != 0 ? Block::sum(total) / W(a.columns) : W(0);
    const W sum = Block::sum(of_thread.sum * exp(of_thread.largest - largest));
    if (Block::lane() == 0) {
      W loss = log(sum) + (W(1) - smoothing) * (largest - at_target);
      if (smoothing != 0) loss += smoothing * (largest - mean);
      static_cast<W*>(a.losses)[row] = loss;
    }
    if (a.row_gradients == nullptr) continue;
    const W gradient = static_cast<const W*>(a.row_gradients)[row];
    const W factor = gradient / sum, even = gradient * share;
    const W of_target = gradient * (W(1) - smoothing);
    for_each_column([&](int64_t i) {
      W values[kWidth];
      load_wide(x + i, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = exp_for<T>(values[k] - largest) * factor - even;
      if (target >= i && target < i + kWidth) {
        const int at = int(target - i);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] -= k == at ? of_target : W(0);
      }
      store_pack(rounded<T>(values), x + i);
    });
  }
}

}  // namespace

template <>
cudaError_t launch(const CrossEntropyArrays& arrays, cudaStream_t stream) {
  const bool packed = are_packed(arrays.type, {arrays.columns}, {arrays.logits});
  return with_width(arrays.type, packed, [&](auto element, auto width) {
    return launch_kernel(&cross_entropy_kernel<decltype(element), width()>,
                         team_shape(arrays.rows, kOpThreads, stream), arrays);
  });
}

}  // namespace deepspeed::kernels
