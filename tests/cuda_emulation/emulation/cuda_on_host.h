// Makes a .cu file one that a host's compiler takes: g++ -x c++ -include
// cuda_emulation/emulation/cuda_on_host.h.
//
// Types, error codes, __half and __nv_bfloat16 come from NVIDIA's own headers, which work on the host as they
// are. What only a device has stands here, on the threads of grid.h. Launches must go through
// launch_kernel().
#pragma once

#if defined(__CUDACC__)
#error "this header is for host compilers"
#endif

#include <bit>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>  // isnan(), copysign() and others as overloaded functions outside of std, as device code has them
#include <string.h>
#include <vector_functions.h>

#include "cuda_emulation/emulation/grid.h"

// ---- Qualifiers
// --------------------------------------------------------------------------------------------

// Blocks run one after the other, so one of each shared variable is enough. AddressSanitizer guards its ends.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __constant__
#define __constant__
#undef __forceinline__
#define __forceinline__ inline
#undef __noinline__
#define __noinline__ __attribute__((noinline))

// ---- Where a thread is
// -------------------------------------------------------------------------------------

inline constexpr const uint3& threadIdx = emulation::builtins.thread_index;
inline constexpr const uint3& blockIdx = emulation::builtins.block_index;
inline constexpr const dim3& blockDim = emulation::builtins.block_size;
inline constexpr const dim3& gridDim = emulation::builtins.grid_size;
inline constexpr int warpSize = 32;

// ---- Barriers
// ----------------------------------------------------------------------------------------------

inline void __syncthreads(emulation::Where where = emulation::Where::current()) {
  emulation::barrier(true, where);
}
inline int __syncthreads_count(int is, emulation::Where where = emulation::Where::current()) {
  return emulation::barrier(is != 0, where).count;
}
inline int __syncthreads_and(int is, emulation::Where where = emulation::Where::current()) {
  return emulation::barrier(is != 0, where).all;
}
inline int __syncthreads_or(int is, emulation::Where where = emulation::Where::current()) {
  return emulation::barrier(is != 0, where).any;
}
inline void __syncwarp(unsigned mask = ~0U, emulation::Where where = emulation::Where::current()) {
  emulation::sync_warp(mask, where);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- Warp functions
// ----------------------------------------------------------------------------------------

namespace emulation {

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

/// Returns the value of lane `from`, or the thread's own where `from` lies outside of its segment.
template <class T>
T shuffled(unsigned mask, T value, unsigned from, bool is_inside, const char* function, const Where& where) {
  const Gathered all = gather(mask, to_bits(value), function, where);
  if (!is_inside) return value;
  if ((mask >> (from & 31U) & 1U) == 0) report_lane_outside_mask(function, from, where);
  return from_bits<T>(all.values[from & 31U]);
}

inline unsigned segment_end(int width) { return lane() | unsigned(width - 1); }

/// Combines the values of the mask's lanes.
template <class Operation>
unsigned reduced(unsigned mask, unsigned value, const char* function, const Where& where,
                 Operation operation) {
  const Gathered all = gather(mask, value, function, where);
  for (unsigned other = 0; other < kWarpSize; ++other)
    if ((mask >> other & 1U) != 0 && other != lane()) value = operation(value, unsigned(all.values[other]));
  return value;
}

}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              emulation::Where where = emulation::Where::current()) {
  const unsigned last = unsigned(width - 1);
  const unsigned source = (emulation::lane() & ~last) | (unsigned(from) & last);
  return emulation::shuffled(mask, value, source, true, "__shfl_sync", where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 emulation::Where where = emulation::Where::current()) {
  const int from = int(emulation::lane()) - int(delta), first = int(emulation::lane() & ~unsigned(width - 1));
  return emulation::shuffled(mask, value, unsigned(from), from >= first, "__shfl_up_sync", where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   emulation::Where where = emulation::Where::current()) {
  const unsigned from = emulation::lane() + delta;
  return emulation::shuffled(mask, value, from, from <= emulation::segment_end(width), "__shfl_down_sync",
                             where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32,
                  emulation::Where where = emulation::Where::current()) {
  const unsigned from = emulation::lane() ^ unsigned(flip);
  return emulation::shuffled(mask, value, from, from <= emulation::segment_end(width), "__shfl_xor_sync",
                             where);
}
inline unsigned __ballot_sync(unsigned mask, int is, emulation::Where where = emulation::Where::current()) {
  const emulation::Gathered all = emulation::gather(mask, is != 0, "__ballot_sync", where);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < emulation::kWarpSize; ++lane)
    if ((mask >> lane & 1U) != 0 && all.values[lane] != 0) ballot |= 1U << lane;
  return ballot;
}
inline int __any_sync(unsigned mask, int is, emulation::Where where = emulation::Where::current()) {
  return __ballot_sync(mask, is, where) != 0;
}
inline int __all_sync(unsigned mask, int is, emulation::Where where = emulation::Where::current()) {
  return __ballot_sync(mask, is, where) == mask;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  emulation::Where where = emulation::Where::current()) {
  return emulation::reduced(mask, value, "__reduce_add_sync", where,
                            [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  emulation::Where where = emulation::Where::current()) {
  return emulation::reduced(mask, value, "__reduce_max_sync", where,
                            [](unsigned a, unsigned b) { return a > b ? a : b; });
}

// ---- Atomic functions
// --------------------------------------------------------------------------------------

namespace emulation {

// The compiler does not instrument it: the race detector hears of one atomic access.
template <class T, class Operation>
__attribute__((noinline, no_sanitize("thread"))) T atomic(T* at, const Operation& operation) {
  note_atomic(at, sizeof(T), __builtin_return_address(0));
  const T old = *at;
  *at = operation(old);
  return old;
}

}  // namespace emulation

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return emulation::atomic(at, [=](T old) { return T(old + value); });
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return emulation::atomic(at, [=](T old) { return old > value ? old : value; });
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  return emulation::atomic(at, [=](T old) { return old < value ? old : value; });
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return emulation::atomic(at, [=](T old) { return T(old | value); });
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return emulation::atomic(at, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return emulation::atomic(at, [=](T old) { return old == expected ? value : old; });
}

// ---- Bits and numbers
// --------------------------------------------------------------------------------------

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }

namespace emulation {

// A GPU's fp32 arithmetic has one nan as a result, and forgets what the operands' nans carried. A CPU hands
// on an operand's nan, and has a negative one of its own.
inline float arithmetic(float result) {
  asm("" : "+x"(result));  // never fused with what comes next, as -ffp-contract=fast would have it
  return result == result ? result : __int_as_float(0x7fffffff);
}
inline double arithmetic(double result) {
  asm("" : "+x"(result));
  return result;
}

/// Converts as a GPU does: it saturates, and makes 0 of a nan (2^31 or 2^63 in 64 bits).
template <class Int, class Float>
Int saturated(Float whole) {
  constexpr Int kLeast = std::is_signed_v<Int> ? Int(Int(1) << (sizeof(Int) * 8 - 1)) : Int(0);
  constexpr Int kMost = Int(~kLeast);
  if (whole != whole) return sizeof(Int) == 4 ? Int(0) : Int(Int(1) << (sizeof(Int) * 8 - 1));
  if (whole <= Float(kLeast)) return kLeast;
  if (whole >= Float(kMost)) return kMost;
  return Int(whole);
}

}  // namespace emulation

inline float __fadd_rn(float a, float b) { return emulation::arithmetic(a + b); }
inline float __fsub_rn(float a, float b) { return emulation::arithmetic(a - b); }
inline float __fmul_rn(float a, float b) { return emulation::arithmetic(a * b); }
inline float __fdiv_rn(float a, float b) { return emulation::arithmetic(a / b); }
inline float __fsqrt_rn(float a) { return emulation::arithmetic(sqrtf(a)); }
inline float __fmaf_rn(float a, float b, float c) { return emulation::arithmetic(fmaf(a, b, c)); }
// The quick ones of a GPU err by a few bits more.
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) {
  const float size = fabsf(b);
  return size > 0x1p126F && size < INFINITY ? emulation::arithmetic(a * 0.0F) : __fdiv_rn(a, b);
}
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline double __dadd_rn(double a, double b) { return emulation::arithmetic(a + b); }
inline double __dsub_rn(double a, double b) { return emulation::arithmetic(a - b); }
inline double __dmul_rn(double a, double b) { return emulation::arithmetic(a * b); }
inline double __ddiv_rn(double a, double b) { return emulation::arithmetic(a / b); }
inline double __dsqrt_rn(double a) { return sqrt(a); }

inline int __float2int_rn(float value) { return emulation::saturated<int>(rintf(value)); }
inline int __float2int_rz(float value) { return emulation::saturated<int>(truncf(value)); }
inline unsigned __float2uint_rn(float value) { return emulation::saturated<unsigned>(rintf(value)); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t{high} << 32 | low) >> (by & 31U));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t{a} * b >> 32); }

template <class T>
T __ldg(const T* at) {
  return *at;
}

inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }

// ---- Launches
// ----------------------------------------------------------------------------------------------

// Arguments are passed by the host, whose memory kernels may not read.
#define EMULATION_HOST_CODE __attribute__((no_sanitize("thread")))

namespace emulation {

/// Stands in the place of the template of CUDA's headers, which forgets the parameters' types.
template <class... Parameters, class... Arguments>
cudaError_t launch_kernel_ex(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                             Arguments&&... arguments) {
  auto call = [kernel, ... parameters = static_cast<Parameters>(arguments)]() EMULATION_HOST_CODE {
    kernel(parameters...);  // each thread has its own copies
  };
  run_grid(
      config->gridDim, config->blockDim, config->dynamicSmemBytes, "kernel",
      [](void* c) EMULATION_HOST_CODE { (*static_cast<decltype(call)*>(c))(); }, &call);
  return cudaGetLastError();
}

/// Returns the dynamic shared memory of the block that runs.
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_memory());
}

}  // namespace emulation
#define cudaLaunchKernelEx ::emulation::launch_kernel_ex
