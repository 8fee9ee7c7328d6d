// Reads and writes the stored types on the device, with the rounding of the CPU kernels: to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace deepspeed::kernels {

__device__ inline float to_float(float value) { return value; }
__device__ inline double to_float(double value) { return value; }  // as wide as it is
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

__device__ inline void round_to(float value, float& to) { to = value; }
__device__ inline void round_to(float value, __half& to) { to = __float2half_rn(value); }
__device__ inline void round_to(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

/// Rounds two elements that lie side by side, of 16 bits by one instruction.
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

/// Holds kWidth elements that are loaded and stored at once.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

}  // namespace deepspeed::kernels
