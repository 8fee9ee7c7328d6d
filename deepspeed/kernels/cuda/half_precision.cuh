// Reads and writes the stored types on the device. Rounds to nearest even, as the CPU kernels do.
#pragma once

#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace deepspeed::kernels {

__device__ inline float to_float(float value) { return value; }
__device__ inline double to_float(double value) { return value; }  // stays a double
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

__device__ inline void round_to(float value, float& to) { to = value; }
__device__ inline void round_to(float value, __half& to) { to = __float2half_rn(value); }
__device__ inline void round_to(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

/// Rounds two numbers and stores them at `to`. For 16 bits one instruction rounds both.
template <class T, class W>
__device__ inline void round_two_to(W first, W second, T* to) {
  round_to(first, to[0]);
  round_to(second, to[1]);
}
__device__ inline void round_two_to(float first, float second, __half* to) {
  const __half2 both = __floats2half2_rn(first, second);
  to[0] = __low2half(both), to[1] = __high2half(both);
}
__device__ inline void round_two_to(float first, float second, __nv_bfloat16* to) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  to[0] = __low2bfloat16(both), to[1] = __high2bfloat16(both);
}

/// Widens the two adjacent elements at `from`, using one instruction each for bf16.
template <class T, class W>
__device__ inline void two_to_float(const T* from, W* to) {
  to[0] = to_float(from[0]), to[1] = to_float(from[1]);
}
__device__ inline void two_to_float(const __nv_bfloat16* from, float* to) {
  unsigned both;
  memcpy(&both, from, sizeof(both));
  to[0] = __uint_as_float(both << 16), to[1] = __uint_as_float(both & 0xffff0000U);
}

/// Holds kWidth elements that are loaded and stored at once.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

template <class T, int kWidth, class W>
__device__ inline void to_float(const Pack<T, kWidth>& pack, W* to) {
  if constexpr (kWidth == 1) {
    to[0] = to_float(pack.at[0]);
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; k += 2) two_to_float(pack.at + k, to + k);
  }
}

}  // namespace deepspeed::kernels
