// A block takes a row. Its gradient is written over the logits in the last pass, behind the barriers of the
// sums before it.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

using Block = Team<kOpThreads>;

template <class T>
__global__ void __launch_bounds__(kOpThreads) cross_entropy_kernel(CrossEntropyArrays a) {
  using W = Wide<T>;
  const W smoothing = W(a.label_smoothing);
  for (int64_t row = Block::first(); row < a.rows; row += Block::count()) {
    T* const x = static_cast<T*>(a.logits) + row * a.columns;
    const int64_t target = a.targets[row];
    const bool is_ignored = target == a.ignore_index, is_class = target >= 0 && target < a.columns;
    if (is_ignored || !is_class) {  // alike for all threads of the block
      const W rest = is_ignored ? W(0) : W(NAN);
      if (Block::lane() == 0) static_cast<W*>(a.losses)[row] = rest;
      if (a.row_gradients == nullptr) continue;
      for (int64_t i = Block::lane(); i < a.columns; i += kOpThreads) round_to(rest, x[i]);
      continue;
    }
    const W at_target = to_float(x[target]);
    W largest = -W(INFINITY), total = 0;
    for (int64_t i = Block::lane(); i < a.columns; i += kOpThreads) {
      const W value = to_float(x[i]);
      largest = value > largest ? value : largest;
      total += value;
    }
    largest = Block::largest(largest);
    const W mean = smoothing != 0 ? Block::sum(total) / W(a.columns) : W(0);
    W sum = 0;
    for (int64_t i = Block::lane(); i < a.columns; i += kOpThreads) sum += exp(to_float(x[i]) - largest);
    sum = Block::sum(sum);
    if (Block::lane() == 0) {
      W loss = log(sum) + (W(1) - smoothing) * (largest - at_target);
      if (smoothing != 0) loss += smoothing * (largest - mean);
      static_cast<W*>(a.losses)[row] = loss;
    }
    if (a.row_gradients == nullptr) continue;
    const W gradient = static_cast<const W*>(a.row_gradients)[row];
    const W factor = gradient / sum, even = gradient * smoothing / W(a.columns);
    for (int64_t i = Block::lane(); i < a.columns; i += kOpThreads) {
      const W share = i == target ? even + gradient * (W(1) - smoothing) : even;
      round_to(exp(to_float(x[i]) - largest) * factor - share, x[i]);
    }
  }
}

}  // namespace

cudaError_t launch_cross_entropy(const CrossEntropyArrays& arrays, cudaStream_t stream) {
  return with_stored_type(arrays.type, [&](auto element) {
    return launch_kernel(&cross_entropy_kernel<decltype(element)>,
                         team_shape(arrays.rows, kOpThreads, stream), arrays);
  });
}

}  // namespace deepspeed::kernels
