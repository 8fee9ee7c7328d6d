// Each thread takes eight elements. A block of elements that shares a scale belongs to one warp for 4-bit
// codes, and to a whole CUDA block for 8-bit codes. Its threads find the largest absolute value together,
// then write their codes. Each product and quotient rounds on its own, as on the CPU, so that codes and
// scales have the same bits.
#include <math_constants.h>

#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"
#include "deepspeed/kernels/cuda/launches.h"

namespace deepspeed::kernels {
namespace {

constexpr int kElements = 8;  // per thread
constexpr int kQuantizeThreads = 256;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// These constants bring the results of host functions to the device.
template <BlockCode kCode>
struct CodeOf {
  static constexpr int kBits = bits_of(kCode);
  static constexpr int64_t kBlock = quantization_block(kCode);
  static constexpr float kLargest = largest_code(kCode);
  static constexpr int kThreads = int(kBlock / kElements);  // per block of elements that shares a scale
  static constexpr int kBlocksAtOnce = kQuantizeThreads / kThreads;
  static_assert(kThreads == kWarp || kThreads == kQuantizeThreads);
};

// Keeps 1 / scale a normal number, as the CPU kernel does.
constexpr float kLargestScaleThere = 0x1p126F;

/// Returns the code of the nearest e4m3 number, ties to even. |x| is at most 448, or slightly more.
__device__ inline unsigned float8_code(float x) {
  const int bits = __float_as_int(fabsf(x));
  const unsigned sign = (__float_as_uint(x) >> 24) & 0x80U;
  const int normal = ((bits + ((bits >> 20) & 1) + 0x7ffff) >> 20) - ((127 - 7) << 3);
  // The digits of a sum with 2^14 end at 2^-9, the smallest e4m3 number.
  const int small = __float_as_int(__fadd_rn(fabsf(x), 0x1p14F)) - __float_as_int(0x1p14F);
  return sign | unsigned(fabsf(x) < 0x1p-6F ? small : normal);
}

__device__ inline float float8_value(unsigned code) {
  const int magnitude = int(code & 0x7fU);
  const int normal = (magnitude + ((127 - 7) << 3)) << 20;
  const int small = __float_as_int(__fmul_rn(float(magnitude), 0x1p-9F));
  return __int_as_float((magnitude < 8 ? small : normal) | int((code & 0x80U) << 24));
}

template <BlockCode kCode>
__device__ inline unsigned code_of_scaled(float scaled) {
  if constexpr (kCode == BlockCode::kFloat8) return float8_code(scaled);
  constexpr float kLeast = -CodeOf<kCode>::kLargest, kMost = CodeOf<kCode>::kLargest - 1;
  return unsigned(__float2int_rn(fminf(fmaxf(scaled, kLeast), kMost)));
}

/// Returns the value of code k in `codes`, not yet multiplied by the scale.
template <BlockCode kCode>
__device__ inline float value_of(const uint8_t* codes, int k) {
  if constexpr (kCode == BlockCode::kInt4) {
    const unsigned byte = codes[k / 2];
    const unsigned high = k % 2 == 0 ? byte << 28 : byte << 24;  // moves the code to the highest 4 bits
    return float(int(high) >> 28);
  }
  if constexpr (kCode == BlockCode::kInt8) return float(int8_t(codes[k]));
  return float8_value(codes[k]);
}

/// Returns to each thread the largest value of the threads that share its scale. All threads of a CUDA block
/// must call it.
template <int kThreads>
__device__ inline float largest_of_all(float value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lane));
  if constexpr (kThreads > kWarp) {
    __shared__ float of_warps[kThreads / kWarp];
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < kThreads / kWarp; ++warp) value = fmaxf(value, of_warps[warp]);
  }
  return value;
}

template <class T>
__device__ inline void load_elements(const T* values, int64_t begin, int64_t numel, bool aligned, float* x) {
  if (aligned && begin + kElements <= numel) {
    const auto pack = *reinterpret_cast<const Pack<T, kElements>*>(values + begin);
#pragma unroll
    for (int k = 0; k < kElements; ++k) x[k] = to_float(pack.at[k]);
    return;
  }
  for (int k = 0; k < kElements; ++k) x[k] = begin + k < numel ? to_float(values[begin + k]) : 0.0F;
}

template <class T, BlockCode kCode>
__global__ void __launch_bounds__(kQuantizeThreads)
    quantize_kernel(const T* __restrict__ values, int64_t numel, bool aligned, uint8_t* __restrict__ codes,
                    float* __restrict__ scales) {
  using Code = CodeOf<kCode>;
  const int64_t block = int64_t{blockIdx.x} * Code::kBlocksAtOnce + threadIdx.x / Code::kThreads;
  const int64_t begin = block * Code::kBlock + int64_t{threadIdx.x % Code::kThreads} * kElements;
  float x[kElements], largest = 0;
  load_elements(values, begin, numel, aligned, x);
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    // Numbers that are not finite count as infinite, because fmaxf() would ignore nan.
    largest = fmaxf(largest, isfinite(x[k]) ? fabsf(x[k]) : CUDART_INF_F);
  }
  largest = largest_of_all<Code::kThreads>(largest);
  const bool is_finite = isfinite(largest);
  const float scale = largest == 0 ? 1.0F : fminf(__fdiv_rn(Code::kLargest, largest), kLargestScaleThere);
  if (begin >= numel) return;
  if (begin % Code::kBlock == 0) scales[block] = is_finite ? __fdiv_rn(1.0F, scale) : CUDART_NAN_F;
  constexpr int kBytes = kElements * Code::kBits / 8;
  unsigned words[kBytes / 4] = {};
  if (is_finite) {
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      constexpr unsigned kMask = (1U << Code::kBits) - 1;
      const unsigned code = code_of_scaled<kCode>(__fmul_rn(x[k], scale)) & kMask;
      words[k * Code::kBits / 32] |= code << (k * Code::kBits % 32);
    }
  }
  uint8_t* const to = codes + begin * Code::kBits / 8;
  const int64_t num_bytes = ((numel - begin) * Code::kBits + 7) / 8;
  if (num_bytes >= kBytes) {
#pragma unroll
    for (int word = 0; word < kBytes / 4; ++word) reinterpret_cast<unsigned*>(to)[word] = words[word];
    return;
  }
  for (int64_t byte = 0; byte < num_bytes; ++byte) to[byte] = uint8_t(words[byte / 4] >> (byte % 4 * 8));
}

template <class T, BlockCode kCode, bool kAdd>
__global__ void __launch_bounds__(kQuantizeThreads)
    dequantize_kernel(const uint8_t* __restrict__ codes, const float* __restrict__ scales, int64_t numel,
                      T* __restrict__ values) {
  using Code = CodeOf<kCode>;
  const int64_t begin = (int64_t{blockIdx.x} * kQuantizeThreads + threadIdx.x) * kElements;
  if (begin >= numel) return;
  const float scale = scales[begin / Code::kBlock];
  const uint8_t* const from = codes + begin * Code::kBits / 8;
  const int count = int(numel - begin < kElements ? numel - begin : kElements);
  for (int k = 0; k < count; ++k) {
    const float value = __fmul_rn(value_of<kCode>(from, k), scale);
    if constexpr (kAdd) {
      values[begin + k] = __fadd_rn(values[begin + k], value);
    } else {
      round_to(value, values[begin + k]);
    }
  }
}

unsigned num_parts(int64_t numel, int64_t part) { return unsigned((numel + part - 1) / part); }

template <class T, BlockCode kCode>
cudaError_t quantize_as(const QuantizedArray& array, cudaStream_t stream) {
  const auto* const values = static_cast<const T*>(array.values);
  const bool aligned = reinterpret_cast<uintptr_t>(values) % (sizeof(T) * kElements) == 0;
  const unsigned blocks = num_parts(array.numel, CodeOf<kCode>::kBlock * CodeOf<kCode>::kBlocksAtOnce);
  return launch_kernel(&quantize_kernel<T, kCode>, {blocks, kQuantizeThreads, stream}, values, array.numel,
                       aligned, array.codes, array.scales);
}

template <class T, BlockCode kCode, bool kAdd>
cudaError_t dequantize_as(const QuantizedArray& array, cudaStream_t stream) {
  const unsigned blocks = num_parts(array.numel, int64_t{kQuantizeThreads} * kElements);
  return launch_kernel(&dequantize_kernel<T, kCode, kAdd>, {blocks, kQuantizeThreads, stream}, array.codes,
                       array.scales, array.numel, static_cast<T*>(array.values));
}

/// Calls work.operator()<kCode>() with `code` as the template argument.
template <class Work>
cudaError_t by_code(BlockCode code, const Work& work) {
  switch (code) {
    case BlockCode::kInt4:
      return work.template operator()<BlockCode::kInt4>();
    case BlockCode::kFloat8:
      return work.template operator()<BlockCode::kFloat8>();
    default:
      return work.template operator()<BlockCode::kInt8>();
  }
}

}  // namespace

cudaError_t launch_quantize(const QuantizedArray& array, cudaStream_t stream) {
  return by_code(array.code, [&]<BlockCode kCode>() {
    if (array.type == ElementType::kFloat16) return quantize_as<__half, kCode>(array, stream);
    if (array.type == ElementType::kBFloat16) return quantize_as<__nv_bfloat16, kCode>(array, stream);
    return quantize_as<float, kCode>(array, stream);
  });
}

cudaError_t launch_dequantize(const QuantizedArray& array, cudaStream_t stream) {
  return by_code(array.code, [&]<BlockCode kCode>() {
    if (array.type == ElementType::kFloat16) return dequantize_as<__half, kCode, false>(array, stream);
    if (array.type == ElementType::kBFloat16)
      return dequantize_as<__nv_bfloat16, kCode, false>(array, stream);
    return dequantize_as<float, kCode, false>(array, stream);
  });
}

cudaError_t launch_add_quantized(const QuantizedArray& array, cudaStream_t stream) {
  return by_code(array.code,
                 [&]<BlockCode kCode>() { return dequantize_as<float, kCode, true>(array, stream); });
}

}  // namespace deepspeed::kernels
