// A thread reads and writes its own columns and keeps them in registers, so output and input may be one
// array. Rows that do not fit are read in each of three passes.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T, int kWidth, class TheTeam, bool kKept>
__global__ void __launch_bounds__(kOpThreads, kKept ? 1 : kUnkeptBlocks)
    masked_softmax_kernel(MaskedSoftmaxArrays a) {
  using W = Wide<T>;
  using Packs = RowPacks<T, kWidth, TheTeam, kKept>;
  for (int64_t row = TheTeam::first(); row < a.rows; row += TheTeam::count()) {
    const T* const scores = static_cast<const T*>(a.scores) + row * a.columns;
    T* const output = static_cast<T*>(a.output) + row * a.columns;
    const int64_t of_mask = a.mask == nullptr ? 0 : mask_offset(a, row);
    const auto load_masked = [&](int64_t column, W(&values)[kWidth]) {
      load_wide(scores + column, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = mul_rn(values[k], W(a.scale));
      if (a.mask == nullptr) return;
      W mask[kWidth];
      load_parameters<T>(a.mask, a.mask_type, of_mask + column, mask);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = add_rn(values[k], mask[k]);
    };
    W kept[Packs::kCount][kWidth];
    W largest = -W(INFINITY);
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      load_masked(column, kept[pack]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) largest = kept[pack][k] > largest ? kept[pack][k] : largest;
    });
    largest = TheTeam::largest(largest);
    W sum = 0;
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      if (!kKept) load_masked(column, kept[pack]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        kept[pack][k] = exp_for<T>(kept[pack][k] - largest);
        sum += kept[pack][k];
      }
    });
    const W inverse = W(1) / TheTeam::sum(sum);
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      if (!kKept) load_masked(column, kept[pack]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (!kKept) kept[pack][k] = exp_for<T>(kept[pack][k] - largest);
        kept[pack][k] *= inverse;
      }
      store_pack(rounded<T>(kept[pack]), output + column);
    });
  }
}

template <class T, int kWidth, class TheTeam, bool kKept>
__global__ void __launch_bounds__(kOpThreads) softmax_backward_kernel(SoftmaxBackwardArrays a) {
  using W = Wide<T>;
  using Packs = RowPacks<T, kWidth, TheTeam, kKept>;
  for (int64_t row = TheTeam::first(); row < a.rows; row += TheTeam::count()) {
    const T* const grad = static_cast<const T*>(a.grad_output) + row * a.columns;
    const T* const y = static_cast<const T*>(a.output) + row * a.columns;
    T* const grad_input = static_cast<T*>(a.grad_input) + row * a.columns;
    Packs grads, outputs;
    W dot = 0;
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      W of_grad[kWidth], of_output[kWidth];
      grads.load(grad, pack, column);
      outputs.load(y, pack, column);
      grads.get(grad, pack, column, of_grad);
      outputs.get(y, pack, column, of_output);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) dot += of_grad[k] * of_output[k];
    });
    dot = TheTeam::sum(dot);
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      W of_grad[kWidth], of_output[kWidth];
      grads.get(grad, pack, column, of_grad);
      outputs.get(y, pack, column, of_output);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) of_grad[k] = W(a.scale) * (of_output[k] * (of_grad[k] - dot));
      store_pack(rounded<T>(of_grad), grad_input + column);
    });
  }
}

}  // namespace

template <>
cudaError_t launch(const MaskedSoftmaxArrays& arrays, cudaStream_t stream) {
  bool packed = are_packed(arrays.type, {arrays.columns}, {arrays.scores, arrays.mask, arrays.output});
  for (int dim = 0; dim < arrays.mask_dims; ++dim) {
    packed = packed && are_packed(arrays.type, {arrays.mask_strides[dim]}, {});
  }
  return with_row(arrays.type, arrays.columns, packed, [&](auto element, auto width, auto team, auto kept) {
    return launch_kernel(&masked_softmax_kernel<decltype(element), width(), decltype(team), kept()>,
                         team_shape(arrays.rows, decltype(team)::kThreads, stream), arrays);
  });
}

template <>
cudaError_t launch(const SoftmaxBackwardArrays& arrays, cudaStream_t stream) {
  const bool packed =
      are_packed(arrays.type, {arrays.columns}, {arrays.grad_output, arrays.output, arrays.grad_input});
  return with_row(arrays.type, arrays.columns, packed, [&](auto element, auto width, auto team, auto kept) {
    return launch_kernel(&softmax_backward_kernel<decltype(element), width(), decltype(team), kept()>,
                         team_shape(arrays.rows, decltype(team)::kThreads, stream), arrays);
  });
}

}  // namespace deepspeed::kernels
