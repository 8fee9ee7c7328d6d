// A team adds a position's gradient to its row by atomics: positions of one row may meet there.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) embedding_gradient_kernel(EmbeddingGradientArrays a) {
  using W = Wide<T>;
  for_each_in_segments<TheTeam>(a.positions, a.dim, 1, [&](int64_t position, int64_t column) {
    const int64_t index = a.indices[position];
    if (index == a.padding_index) return;
    const bool is_row = index >= 0 && index < a.num_embeddings;
    const W value =
        is_row ? W(to_float(static_cast<const T*>(a.grad_output)[position * a.dim + column])) : W(NAN);
    if (!is_row && a.num_embeddings == 0) return;
    atomicAdd(static_cast<W*>(a.grad_weight) + (is_row ? index : 0) * a.dim + column, value);
  });
}

}  // namespace

cudaError_t launch_embedding_gradient(const EmbeddingGradientArrays& arrays, cudaStream_t stream) {
  return with_team(arrays.type, arrays.dim, [&](auto element, auto team) {
    return launch_kernel(&embedding_gradient_kernel<decltype(element), decltype(team)>,
                         segment_shape(arrays.positions, arrays.dim, decltype(team)::kThreads, stream),
                         arrays);
  });
}

}  // namespace deepspeed::kernels
