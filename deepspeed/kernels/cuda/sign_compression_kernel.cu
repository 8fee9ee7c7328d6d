// One CUDA block takes one block of elements, and each thread eight elements, which make one byte of bits.
// Squares are added up along a tree, in the same order on every call.
#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

constexpr int kSignThreads = 256;
constexpr int kSignElements = 8;
using SignPack = Pack<float, 4>;

/// Holds a thread's eight elements.
struct Eight {
  float at[kSignElements];

  __device__ static Eight load(const float* from) {
    Eight loaded;
    for (int half = 0; half < 2; ++half) {
      const SignPack pack = reinterpret_cast<const SignPack*>(from)[half];
#pragma unroll
      for (int k = 0; k < 4; ++k) loaded.at[half * 4 + k] = pack.at[k];
    }
    return loaded;
  }
  __device__ void store(float* to) const {
    for (int half = 0; half < 2; ++half) {
      SignPack pack;
#pragma unroll
      for (int k = 0; k < 4; ++k) pack.at[k] = at[half * 4 + k];
      reinterpret_cast<SignPack*>(to)[half] = pack;
    }
  }
};

__global__ void __launch_bounds__(kSignThreads)
    compress_signs_kernel(float* __restrict__ values, float* __restrict__ errors, uint8_t* __restrict__ bits,
                          float* __restrict__ scales) {
  const int64_t thread = int64_t{blockIdx.x} * kSignThreads + threadIdx.x;
  float* const at = values + thread * kSignElements;
  float* const error_at = errors + thread * kSignElements;
  Eight x = Eight::load(at);
  const Eight error = Eight::load(error_at);
  float squares = 0;
  unsigned byte = 0;
#pragma unroll
  for (int k = 0; k < kSignElements; ++k) {
    x.at[k] = __fadd_rn(x.at[k], error.at[k]);
    squares = __fmaf_rn(x.at[k], x.at[k], squares);
    byte |= (x.at[k] >= 0 ? 1U : 0U) << k;
  }
  __shared__ float sums[kSignThreads];
  sums[threadIdx.x] = squares;
  for (unsigned half = kSignThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const float scale = __fsqrt_rn(__fdiv_rn(sums[0], float(kSignThreads * kSignElements)));
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  x.store(at);
  bits[thread] = uint8_t(byte);
#pragma unroll
  for (int k = 0; k < kSignElements; ++k)
    x.at[k] = __fsub_rn(x.at[k], (byte >> k & 1U) != 0 ? scale : -scale);
  x.store(error_at);
}

__global__ void __launch_bounds__(kSignThreads)
    add_signs_kernel(const uint8_t* __restrict__ bits, const float* __restrict__ scales,
                     float* __restrict__ sums) {
  const int64_t thread = int64_t{blockIdx.x} * kSignThreads + threadIdx.x;
  const float scale = scales[blockIdx.x];
  const unsigned byte = bits[thread];
  Eight sum = Eight::load(sums + thread * kSignElements);
#pragma unroll
  for (int k = 0; k < kSignElements; ++k)
    sum.at[k] = __fadd_rn(sum.at[k], (byte >> k & 1U) != 0 ? scale : -scale);
  sum.store(sums + thread * kSignElements);
}

}  // namespace

cudaError_t launch_compress_signs(float* values, float* errors, uint8_t* bits, float* scales,
                                  int64_t num_blocks, cudaStream_t stream) {
  return launch_kernel(&compress_signs_kernel, {unsigned(num_blocks), kSignThreads, stream}, values, errors,
                       bits, scales);
}

cudaError_t launch_add_signs(const uint8_t* bits, const float* scales, float* sums, int64_t num_blocks,
                             cudaStream_t stream) {
  return launch_kernel(&add_signs_kernel, {unsigned(num_blocks), kSignThreads, stream}, bits, scales, sums);
}

}  // namespace deepspeed::kernels
