// What kernels of the fused operators share: teams of threads that take rows, sums over a team, and
// arithmetic of fp32 or fp64.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/op_arrays.h"
#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"

namespace deepspeed::kernels {

inline constexpr int kOpThreads = 256;
inline constexpr int kOpWarp = 32;
inline constexpr int kOpWarps = kOpThreads / kOpWarp;
inline constexpr int64_t kMostOpBlocks = 1 << 16;
// A row of so many elements keeps a block's threads busy; a shorter one goes to a warp.
inline constexpr int64_t kBlockRowColumns = 1024;

template <class T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
/// The type of arithmetic and of sums.
template <class T>
using Wide = typename WideOf<T>::Type;

__device__ inline void round_to(double value, double& to) { to = value; }

/// These round once, as the CPU does: they are not contracted.
__device__ inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double mul_rn(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double add_rn(double a, double b) { return __dadd_rn(a, b); }

/// Returns an element of a parameter, which is stored as T or, beside 16 bits, as fp32.
template <class T>
__device__ inline Wide<T> parameter_at(const void* values, ElementType type, int64_t i) {
  if (sizeof(T) == 2 && type == ElementType::kFloat32) return static_cast<const float*>(values)[i];
  return to_float(static_cast<const T*>(values)[i]);
}

template <class T>
__device__ inline T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

/// A team of kSize threads, a warp or a block, takes one row at a time.
template <int kSize>
struct Team {
  static_assert(kSize == kOpWarp || kSize == kOpThreads);
  static constexpr int kThreads = kSize;

  __device__ static int lane() { return int(threadIdx.x) % kSize; }
  __device__ static int64_t first() {
    return int64_t{blockIdx.x} * (kOpThreads / kSize) + int(threadIdx.x) / kSize;
  }
  __device__ static int64_t count() { return int64_t{gridDim.x} * (kOpThreads / kSize); }

  /// Returns `combined` of the team's values to each thread. The order is fixed.
  template <class T, class Combine>
  __device__ static T reduce(T value, const Combine& combined) {
    for (int distance = kOpWarp / 2; distance > 0; distance /= 2) {
      value = combined(value, __shfl_xor_sync(~0U, value, distance));
    }
    if constexpr (kSize == kOpWarp) return value;
    __shared__ T of_warps[kOpWarps];
    __syncthreads();  // all have read what the call before has left
    if (threadIdx.x % kOpWarp == 0) of_warps[threadIdx.x / kOpWarp] = value;
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < kOpWarps; ++warp) value = combined(value, of_warps[warp]);
    return value;
  }
  template <class T>
  __device__ static T sum(T value) {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  /// Returns the largest value. A nan may be lost.
  template <class T>
  __device__ static T largest(T value) {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }
};

/// Returns the shape of a launch whose teams of `size` threads take `rows` rows.
inline LaunchShape team_shape(int64_t rows, int size, cudaStream_t stream) {
  const int64_t teams = kOpThreads / size, blocks = (rows + teams - 1) / teams;
  return {unsigned(blocks < kMostOpBlocks ? blocks : kMostOpBlocks), kOpThreads, stream};
}

/// Rows are cut into segments, so that few long rows busy the device too.
inline constexpr int64_t kSegmentColumns = 4096;

/// Returns the shape of a launch whose teams take segments of rows.
inline LaunchShape segment_shape(int64_t rows, int64_t columns, int size, cudaStream_t stream) {
  return team_shape(rows * ((columns + kSegmentColumns - 1) / kSegmentColumns), size, stream);
}

/// Calls body(row, column) with the columns of the team's segments that are multiples of `step`.
template <class TheTeam, class Body>
__device__ inline void for_each_in_segments(int64_t rows, int64_t columns, int step, const Body& body) {
  const int64_t segments = (columns + kSegmentColumns - 1) / kSegmentColumns;
  for (int64_t task = TheTeam::first(); task < rows * segments; task += TheTeam::count()) {
    const int64_t row = task / segments, begin = task % segments * kSegmentColumns;
    const int64_t end = begin + kSegmentColumns < columns ? begin + kSegmentColumns : columns;
    for (int64_t column = begin + TheTeam::lane() * step; column < end; column += TheTeam::kThreads * step) {
      body(row, column);
    }
  }
}

/// Sums over the rows of parts: a block takes kOpThreads columns of a part.
inline LaunchShape parts_shape(const RowParts& rows, int columns_of_thread, cudaStream_t stream) {
  const int64_t columns = int64_t{kOpThreads} * columns_of_thread;
  return {unsigned(rows.parts * ((rows.columns + columns - 1) / columns)), kOpThreads, stream};
}

/// Where a thread of such a launch is.
struct PartColumns {
  __device__ PartColumns(const RowParts& rows, int columns_of_thread) {
    const int64_t columns = int64_t{kOpThreads} * columns_of_thread;
    const int64_t blocks = (rows.columns + columns - 1) / columns;
    part = blockIdx.x / blocks;
    column = blockIdx.x % blocks * columns + threadIdx.x * columns_of_thread;
  }
  int64_t part, column;
};

/// Calls run(T()) for the stored type, and returns what it returns.
template <class Run>
cudaError_t with_stored_type(ElementType type, const Run& run) {
  switch (type) {
    case ElementType::kFloat16:
      return run(__half());
    case ElementType::kBFloat16:
      return run(__nv_bfloat16());
    case ElementType::kFloat64:
      return run(double());
    default:
      return run(float());
  }
}

/// Calls run(T(), Team<...>()) for the stored type and the team that suits a row.
template <class Run>
cudaError_t with_team(ElementType type, int64_t columns, const Run& run) {
  return with_stored_type(type, [&](auto element) {
    return columns < kBlockRowColumns ? run(element, Team<kOpWarp>()) : run(element, Team<kOpThreads>());
  });
}

}  // namespace deepspeed::kernels
