// A warp turns a head at one position.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kOpThreads) rotary_kernel(RotaryArrays a) {
  using W = Wide<T>;
  using Warp = Team<kOpWarp>;
  const int64_t half = a.rotary / 2, heads = a.batch * a.heads * a.positions;
  for (int64_t r = Warp::first(); r < heads; r += Warp::count()) {
    const int64_t position = r % a.positions, head = r / a.positions % a.heads,
                  batch = r / a.positions / a.heads;
    const auto begin = [&](const int64_t(&strides)[3]) {
      return batch * strides[0] + head * strides[1] + position * strides[2];
    };
    const T* const input = static_cast<const T*>(a.input) + begin(a.input_strides);
    T* const output = static_cast<T*>(a.output) + begin(a.output_strides);
    const int64_t table = batch * a.table_batch_stride + position * half;
    for (int64_t i = Warp::lane(); i < half; i += kOpWarp) {
      const W cos = parameter_at<T>(a.cos, a.table_type, table + i);
      const W stored = parameter_at<T>(a.sin, a.table_type, table + i);
      const W sin = a.backward ? -stored : stored;
      const int64_t first = a.neighbours ? 2 * i : i, second = a.neighbours ? 2 * i + 1 : half + i;
      const W x = to_float(input[first]), y = to_float(input[second]);
      round_to(x * cos - y * sin, output[first]);
      round_to(y * cos + x * sin, output[second]);
    }
    for (int64_t i = a.rotary + Warp::lane(); i < a.dim; i += kOpWarp) output[i] = input[i];
  }
}

}  // namespace

cudaError_t launch_rotary(const RotaryArrays& arrays, cudaStream_t stream) {
  return with_stored_type(arrays.type, [&](auto element) {
    return launch_kernel(&rotary_kernel<decltype(element)>,
                         team_shape(arrays.batch * arrays.heads * arrays.positions, kOpWarp, stream), arrays);
  });
}

}  // namespace deepspeed::kernels
