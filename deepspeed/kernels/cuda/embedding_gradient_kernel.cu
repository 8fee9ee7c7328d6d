// A team adds a position's gradient to its row with atomics, because several positions may share a row.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T, int kWidth, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) embedding_gradient_kernel(EmbeddingGradientArrays a) {
  using W = Wide<T>;
  for_each_in_segments<TheTeam>(a.positions, a.dim, kWidth, [&](int64_t position, int64_t column) {
    const int64_t index = a.indices[position];
    if (index == a.padding_index) return;
    const bool is_row = index >= 0 && index < a.num_embeddings;
    if (!is_row && a.num_embeddings == 0) return;
    W values[kWidth];
    load_wide(static_cast<const T*>(a.grad_output) + position * a.dim + column, values);
    W* const to = static_cast<W*>(a.grad_weight) + (is_row ? index : 0) * a.dim + column;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) atomicAdd(to + k, is_row ? values[k] : W(NAN));
  });
}

}  // namespace

template <>
cudaError_t launch(const EmbeddingGradientArrays& arrays, cudaStream_t stream) {
  const bool packed = are_packed(arrays.type, {arrays.dim}, {arrays.grad_output});
  return with_team(arrays.type, arrays.dim, packed, [&](auto element, auto width, auto team) {
    return launch_kernel(&embedding_gradient_kernel<decltype(element), width(), decltype(team)>,
                         segment_shape(arrays.positions, arrays.dim, decltype(team)::kThreads, stream),
                         arrays);
  });
}

}  // namespace deepspeed::kernels
