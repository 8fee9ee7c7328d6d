// Each block computes a sum of squares in double. Its threads read adjacent packs of four elements, then add
// up along a tree. The grid is fixed, so every call gives the same result. A kernel of one thread derives the
// gradients' scale from the sum, so that the host need not wait for it.
#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

constexpr int kWidth = 4;
constexpr int kThreads = 256;

template <class T>
__device__ inline double square(T value) {
  const double wide = to_float(value);
  return wide * wide;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(const T* __restrict__ values, int64_t numel, bool aligned,
                          double* __restrict__ block_sums) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t packs = aligned ? numel / kWidth : 0;
  double sum = 0;
  for (int64_t i = thread; i < packs; i += threads) {
    const auto pack = reinterpret_cast<const Pack<T, kWidth>*>(values)[i];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      sum += square(pack.at[k]);
    }
  }
  for (int64_t i = packs * kWidth + thread; i < numel; i += threads) {
    sum += square(values[i]);
  }
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) {
    block_sums[blockIdx.x] = sums[0];
  }
}

// Each operation rounds as on the CPU: no product is fused with a sum.
__global__ void gradient_scale_kernel(const double* __restrict__ sum_of_squares, double loss_scale,
                                      double clip, bool skips, double* __restrict__ scale) {
  const double norm = __dsqrt_rn(*sum_of_squares);
  const bool is_finite = isfinite(norm);
  double excess = 1;
  if (is_finite && clip > 0) {
    excess = __ddiv_rn(__dadd_rn(__ddiv_rn(norm, loss_scale), 1e-6), clip);
  }
  const double clipped = __ddiv_rn(1, __dmul_rn(loss_scale, excess > 1 ? excess : 1));
  *scale = is_finite || !skips ? clipped : norm - norm;  // nan
}

template <class T>
cudaError_t launch(const void* values, int64_t numel, double* block_sums, cudaStream_t stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(values) % (sizeof(T) * kWidth) == 0;
  return launch_kernel(&sum_of_squares_kernel<T>, {kSumOfSquaresBlocks, kThreads, stream},
                       static_cast<const T*>(values), numel, aligned, block_sums);
}

}  // namespace

cudaError_t launch_sum_of_squares(const void* values, ElementType type, int64_t numel, double* block_sums,
                                  cudaStream_t stream) {
  switch (type) {
    case ElementType::kFloat16:
      return launch<__half>(values, numel, block_sums, stream);
    case ElementType::kBFloat16:
      return launch<__nv_bfloat16>(values, numel, block_sums, stream);
    case ElementType::kFloat64:
      return launch<double>(values, numel, block_sums, stream);
    default:
      return launch<float>(values, numel, block_sums, stream);
  }
}

cudaError_t launch_gradient_scale(const double* sum_of_squares, double loss_scale, double clip, bool skips,
                                  double* scale, cudaStream_t stream) {
  return launch_kernel(&gradient_scale_kernel, {1, 1, stream}, sum_of_squares, loss_scale, clip, skips,
                       scale);
}

}  // namespace deepspeed::kernels
