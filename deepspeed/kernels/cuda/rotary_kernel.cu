// A thread rotates pairs of one head at one position: two packs, or one pair if heads are not aligned. The
// threads that follow copy the elements after the rotated ones.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kMostRotaryBlocks = 1 << 20;

/// Returns how many threads a head takes at one position.
template <int kWidth>
DEEPSPEED_ON_BOTH constexpr int64_t threads_of_head(const RotaryArrays& a) {
  return a.rotary / 2 / kWidth + (a.dim - a.rotary) / kWidth;
}

/// Rotates heads. Index has 32 bits if they suffice for all threads: a division then takes a fifth of the
/// time.
template <class T, int kWidth, class Index>
__global__ void __launch_bounds__(kOpThreads) rotary_kernel(RotaryArrays a) {
  using W = Wide<T>;
  const int64_t half = a.rotary / 2;
  const auto threads = Index(threads_of_head<kWidth>(a));
  const Index count = Index(a.batch * a.heads * a.positions) * threads;
  for (Index task = Index(blockIdx.x) * kOpThreads + threadIdx.x; task < count;
       task += Index(gridDim.x) * kOpThreads) {
    const Index r = task / threads, position = r % Index(a.positions), rest = r / Index(a.positions);
    const Index head = rest % Index(a.heads), batch = rest / Index(a.heads);
    const auto begin = [&](const int64_t(&strides)[3]) {
      return int64_t(batch) * strides[0] + int64_t(head) * strides[1] + int64_t(position) * strides[2];
    };
    const T* const input = static_cast<const T*>(a.input) + begin(a.input_strides);
    T* const output = static_cast<T*>(a.output) + begin(a.output_strides);
    const int64_t i = int64_t(task % threads) * kWidth;
    W x[kWidth], y[kWidth];
    if (i >= half) {
      const int64_t column = a.rotary + i - half;
      store_pack(load_pack<T, kWidth>(input + column), output + column);
      continue;
    }
    W cos[kWidth], sin[kWidth];
    const int64_t table = int64_t(batch) * a.table_batch_stride + int64_t(position) * half + i;
    load_parameters<T>(a.cos, a.table_type, table, cos);
    load_parameters<T>(a.sin, a.table_type, table, sin);
    const int64_t first = a.neighbours ? 2 * i : i, second = a.neighbours ? 2 * i + kWidth : half + i;
    load_wide(input + first, x);
    load_wide(input + second, y);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (a.backward) sin[k] = -sin[k];
    }
    const auto turn = [](W& x, W& y, W cos, W sin) {
      const W turned = x * cos - y * sin;
      y = y * cos + x * sin;
      x = turned;
    };
    if (a.neighbours && kWidth > 1) {
      // In the two packs, the elements of a pair are adjacent.
#pragma unroll
      for (int k = 0; k < kWidth / 2; ++k) {
        turn(x[2 * k], x[2 * k + 1], cos[k], sin[k]);
        turn(y[2 * k], y[2 * k + 1], cos[kWidth / 2 + k], sin[kWidth / 2 + k]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) turn(x[k], y[k], cos[k], sin[k]);
    }
    store_pack(rounded<T>(x), output + first);
    store_pack(rounded<T>(y), output + second);
  }
}

}  // namespace

template <>
cudaError_t launch(const RotaryArrays& arrays, cudaStream_t stream) {
  const int64_t* const from = arrays.input_strides;
  const int64_t* const to = arrays.output_strides;
  const bool packed = are_packed(arrays.type,
                                 {arrays.rotary / 2, arrays.dim - arrays.rotary, arrays.table_batch_stride,
                                  from[0], from[1], from[2], to[0], to[1], to[2]},
                                 {arrays.input, arrays.output, arrays.cos, arrays.sin});
  return with_width(arrays.type, packed, [&](auto element, auto width) {
    const int64_t count = arrays.batch * arrays.heads * arrays.positions * threads_of_head<width()>(arrays);
    const int64_t blocks = (count + kOpThreads - 1) / kOpThreads;
    const LaunchShape shape{unsigned(blocks < kMostRotaryBlocks ? blocks : kMostRotaryBlocks), kOpThreads,
                            stream};
    // In the loop's last step an index exceeds `count` by less than a grid, so 32 bits hold it.
    if (count <= (int64_t{1} << 31)) {
      return launch_kernel(&rotary_kernel<decltype(element), width(), uint32_t>, shape, arrays);
    }
    return launch_kernel(&rotary_kernel<decltype(element), width(), int64_t>, shape, arrays);
  });
}

}  // namespace deepspeed::kernels
