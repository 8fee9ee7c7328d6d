// A block takes a few columns, which fill one memory sector. Its threads sum over the parts in turns, then
// the block adds up their sums in a fixed order.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

constexpr int kPartColumns = 8;
constexpr int kPartLanes = kOpThreads / kPartColumns;

template <class T, class W>
__global__ void __launch_bounds__(kOpThreads) part_sums_kernel(PartSumsArrays a) {
  __shared__ W of_lanes[kPartLanes][kPartColumns];
  const int64_t blocks = (a.columns + kPartColumns - 1) / kPartColumns;
  const int array = blockIdx.x < blocks ? 0 : 1, within = int(threadIdx.x) % kPartColumns;
  const int lane = int(threadIdx.x) / kPartColumns;
  const int64_t column = (blockIdx.x - array * blocks) * kPartColumns + within;
  const W* const parts = static_cast<const W*>(array == 0 ? a.parts[0] : a.parts[1]);
  W sum = 0;
  if (column < a.columns) {
#pragma unroll 8
    for (int64_t part = lane; part < a.num_parts; part += kPartLanes) sum += parts[part * a.columns + column];
  }
  of_lanes[lane][within] = sum;
  __syncthreads();
  if (lane != 0 || column >= a.columns) return;
  for (int other = 1; other < kPartLanes; ++other) sum += of_lanes[other][within];
  round_to(sum, static_cast<T*>(array == 0 ? a.sums[0] : a.sums[1])[column]);
}

}  // namespace

template <>
cudaError_t launch(const PartSumsArrays& arrays, cudaStream_t stream) {
  const int64_t blocks =
      (arrays.columns + kPartColumns - 1) / kPartColumns * (arrays.parts[1] == nullptr ? 1 : 2);
  return with_stored_type(arrays.type, [&](auto element) {
    using T = decltype(element);
    return launch_kernel(&part_sums_kernel<T, Wide<T>>, {unsigned(blocks), kOpThreads, stream}, arrays);
  });
}

}  // namespace deepspeed::kernels
