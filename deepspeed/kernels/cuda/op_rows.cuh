// What kernels of the fused operators share: teams of threads that take rows, packs of 16 bytes that a thread
// loads and stores at once, sums over a team, and fp32 or fp64 arithmetic.
//
// Each kernel exists for packs and for single elements. The host chooses by the arrays' addresses and the
// distances of rows.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/op_arrays.h"
#include "deepspeed/kernels/cuda/half_precision.cuh"
#include "deepspeed/kernels/cuda/launch.cuh"

namespace deepspeed::kernels {

inline constexpr int kOpThreads = 256;
inline constexpr int kOpWarp = 32;
inline constexpr int kOpWarps = kOpThreads / kOpWarp;
inline constexpr int64_t kMostOpBlocks = 1 << 16;
// A row with this many elements keeps a block's threads busy; a warp takes shorter ones.
inline constexpr int64_t kBlockRowColumns = 1024;

template <class T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
/// Names the type of arithmetic and sums.
template <class T>
using Wide = typename WideOf<T>::Type;

__device__ inline void round_to(double value, double& to) { to = value; }

/// These functions round their result, as on the CPU: nvcc never contracts them.
__device__ inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double mul_rn(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double add_rn(double a, double b) { return __dadd_rn(a, b); }

/// The number of elements of T in 16 bytes, a thread's largest load.
template <class T>
inline constexpr int kPackWidth = 16 / int(sizeof(T));

/// Returns an element of a parameter, stored as T or, for 16-bit inputs, fp32.
template <class T>
__device__ inline Wide<T> parameter_at(const void* values, ElementType type, int64_t i) {
  if (sizeof(T) == 2 && type == ElementType::kFloat32) return static_cast<const float*>(values)[i];
  return to_float(static_cast<const T*>(values)[i]);
}

/// Loads a pack, with one instruction if it has 16 bytes. nvcc may split the plain C++ load into single
/// bytes.
template <class T, int kWidth>
__device__ inline Pack<T, kWidth> load_pack(const T* from) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) * kWidth == sizeof(uint4)) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    Pack<T, kWidth> pack;
    memcpy(&pack, &words, sizeof(pack));
    return pack;
  }
#endif
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

/// Loads kWidth adjacent elements, in packs of at most 16 bytes.
template <class T, int kWidth>
__device__ inline void load_wide(const T* from, Wide<T> (&to)[kWidth]) {
  constexpr int kAtOnce = kWidth < kPackWidth<T> ? kWidth : kPackWidth<T>;
#pragma unroll
  for (int first = 0; first < kWidth; first += kAtOnce) {
    to_float(load_pack<T, kAtOnce>(from + first), to + first);
  }
}

/// Returns a pack of the elements, rounded to T.
template <class T, int kWidth>
__device__ inline Pack<T, kWidth> rounded(const Wide<T> (&from)[kWidth]) {
  Pack<T, kWidth> pack;
  if constexpr (kWidth == 1) {
    round_to(from[0], pack.at[0]);
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; k += 2) round_two_to(from[k], from[k + 1], pack.at + k);
  }
  return pack;
}

/// Stores a pack, with one instruction if it has 16 bytes. nvcc may split the plain C++ store into single
/// elements.
template <class T, int kWidth>
__device__ inline void store_pack(const Pack<T, kWidth>& pack, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

/// Loads elements of a parameter, starting at `i`, as parameter_at() does.
template <class T, int kWidth>
__device__ inline void load_parameters(const void* values, ElementType type, int64_t i,
                                       Wide<T> (&to)[kWidth]) {
  if constexpr (sizeof(T) == 2) {
    if (type == ElementType::kFloat32) return load_wide(static_cast<const float*>(values) + i, to);
  }
  load_wide(static_cast<const T*>(values) + i, to);
}

/// Returns 2^x with one instruction. The relative error is 2^-22, and denormal numbers become zero.
__device__ inline float quick_exp2(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}

/// Returns 1 / x with one instruction, correct except for the last bit. Denormal numbers become zero.
__device__ inline float quick_inverse(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / x;
#endif
}

inline constexpr double kLog2OfE = 1.4426950408889634;

/// Returns 2^x, exact enough for a result that is rounded to T. For 16 bits that is quick_exp2().
template <class T>
__device__ inline Wide<T> exp2_for(Wide<T> x) {
  if constexpr (sizeof(T) == 2) return quick_exp2(x);
  return exp2(x);
}

/// Returns exp(x), exact enough for a result that is rounded to T.
template <class T>
__device__ inline Wide<T> exp_for(Wide<T> x) {
  if constexpr (sizeof(T) == 2) return quick_exp2(x * float(kLog2OfE));
  return exp(x);
}

/// Returns 1 / x, exact enough for a result that is rounded to T.
template <class T>
__device__ inline Wide<T> inverse_for(Wide<T> x) {
  if constexpr (sizeof(T) == 2) return quick_inverse(x);
  return Wide<T>(1) / x;
}

/// Returns a / b, exactly rounded, or within 2 ulp if T has 16 bits. The caller rounds it to T.
template <class T>
__device__ inline Wide<T> quotient_for(Wide<T> a, Wide<T> b) {
  if constexpr (sizeof(T) == 2) return __fdividef(a, b);
  return a / b;
}

/// Returns the sigmoid of x, exact enough for a result that is rounded to T.
template <class T>
__device__ inline Wide<T> sigmoid_for(Wide<T> x) {
  return inverse_for<T>(Wide<T>(1) + exp_for<T>(-x));
}

/// Describes a team of kSize threads, a warp or a block. It takes one row at a time.
template <int kSize>
struct Team {
  static_assert(kSize == kOpWarp || kSize == kOpThreads);
  static constexpr int kThreads = kSize;

  __device__ static int lane() { return int(threadIdx.x) % kSize; }
  __device__ static int64_t first() {
    return int64_t{blockIdx.x} * (kOpThreads / kSize) + int(threadIdx.x) / kSize;
  }
  __device__ static int64_t count() { return int64_t{gridDim.x} * (kOpThreads / kSize); }

  /// Returns to each thread the team's values, combined by combined(a, b) in a fixed order. All threads of
  /// the team must call it.
  template <class T, class Combine>
  __device__ static T reduce(T value, const Combine& combined) {
    for (int distance = kOpWarp / 2; distance > 0; distance /= 2) {
      value = combined(value, __shfl_xor_sync(~0U, value, distance));
    }
    if constexpr (kSize == kOpWarp) return value;
    __shared__ T of_warps[kOpWarps];
    __syncthreads();  // all threads have read the values of the previous call
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
  /// Returns the team's largest value to each thread. May ignore nan.
  template <class T>
  __device__ static T largest(T value) {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }
};

/// Returns the most elements of a row that a thread keeps in registers. `width` is how many it loads at once.
/// If threads kept more, too few of them would fit on a multiprocessor. Single elements (a width of 1) need
/// an address each, so fewer are kept.
DEEPSPEED_ON_BOTH constexpr int kept_columns(int width) { return width == 1 ? 16 : 24; }

/// Number of blocks that must fit a multiprocessor if threads do not keep their rows. More would make the
/// compiler spill registers.
inline constexpr int kUnkeptBlocks = 4;

/// Holds a thread's packs of an array's row, or reads them again at each use.
template <class T, int kWidth, class TheTeam, bool kKept>
struct RowPacks {
  static constexpr int kCount = kKept ? kept_columns(kWidth) / kWidth : 1;

  /// Calls body(pack, column) for this thread's columns; `pack` is the index into `kept`.
  template <class Body>
  __device__ static void for_each(int64_t columns, const Body& body) {
    if constexpr (kKept) {
#pragma unroll
      for (int pack = 0; pack < kCount; ++pack) {
        const int64_t column = (int64_t{pack} * TheTeam::kThreads + TheTeam::lane()) * kWidth;
        if (column < columns) body(pack, column);
      }
    } else {
      for (int64_t column = int64_t{TheTeam::lane()} * kWidth; column < columns;
           column += int64_t{TheTeam::kThreads} * kWidth) {
        body(0, column);
      }
    }
  }

  __device__ void load(const T* row, int pack, int64_t column) {
    if (kKept) kept[pack] = load_pack<T, kWidth>(row + column);
  }
  __device__ void get(const T* row, int pack, int64_t column, Wide<T> (&values)[kWidth]) const {
    if constexpr (kKept) {
      to_float(kept[pack], values);
    } else {
      load_wide(row + column, values);
    }
  }

  Pack<T, kWidth> kept[kCount];
};

/// Returns the shape of a launch whose teams of `size` threads take `rows` rows.
inline LaunchShape team_shape(int64_t rows, int size, cudaStream_t stream) {
  const int64_t teams = kOpThreads / size, blocks = (rows + teams - 1) / teams;
  return {unsigned(blocks < kMostOpBlocks ? blocks : kMostOpBlocks), kOpThreads, stream};
}

/// Number of columns in a segment, a piece of a row. Segments let a few long rows keep the device busy.
inline constexpr int64_t kSegmentColumns = 4096;

/// Returns the shape of a launch whose teams take segments of rows.
inline LaunchShape segment_shape(int64_t rows, int64_t columns, int size, cudaStream_t stream) {
  return team_shape(rows * ((columns + kSegmentColumns - 1) / kSegmentColumns), size, stream);
}

/// Calls body(row, column) for this thread's columns of its team's segments. A thread takes `step` columns
/// from `column` on.
template <class TheTeam, class Body>
__device__ inline void for_each_in_segments(int64_t rows, int64_t columns, int step, const Body& body) {
  // The divisions are outside the loop, because one costs as much as several elements.
  const int64_t segments = (columns + kSegmentColumns - 1) / kSegmentColumns;
  if (segments == 0) return;
  const int64_t more_rows = TheTeam::count() / segments;
  const int64_t more_segments = TheTeam::count() - more_rows * segments;
  int64_t row = TheTeam::first() / segments, segment = TheTeam::first() - row * segments;
  while (row < rows) {
    const int64_t begin = segment * kSegmentColumns;
    const int64_t end = begin + kSegmentColumns < columns ? begin + kSegmentColumns : columns;
    for (int64_t column = begin + TheTeam::lane() * step; column < end; column += TheTeam::kThreads * step) {
      body(row, column);
    }
    row += more_rows, segment += more_segments;
    if (segment >= segments) segment -= segments, ++row;
  }
}

/// Returns the shape of a launch that sums over the rows of parts. Each block takes kOpThreads *
/// columns_of_thread columns of one part.
inline LaunchShape parts_shape(const RowParts& rows, int columns_of_thread, cudaStream_t stream) {
  const int64_t columns = int64_t{kOpThreads} * columns_of_thread;
  return {unsigned(rows.parts * ((rows.columns + columns - 1) / columns)), kOpThreads, stream};
}

/// Says which part and column a thread takes in a launch of parts_shape().
struct PartColumns {
  __device__ PartColumns(const RowParts& rows, int columns_of_thread) {
    const int64_t columns = int64_t{kOpThreads} * columns_of_thread;
    const int64_t blocks = (rows.columns + columns - 1) / columns;
    part = blockIdx.x / blocks;
    column = blockIdx.x % blocks * columns + threadIdx.x * columns_of_thread;
  }
  int64_t part, column;
};

/// Returns run(T()), with T the C++ type for `type`.
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

/// Returns whether a kernel can take packs. All arrays must begin at multiples of 16 bytes. `distances`, in
/// elements, must be multiples of a pack. null means no array. fp64 has no packs.
inline bool are_packed(ElementType type, std::initializer_list<int64_t> distances,
                       std::initializer_list<const void*> arrays) {
  if (type == ElementType::kFloat64) return false;
  const int64_t width = type == ElementType::kFloat32 ? kPackWidth<float> : kPackWidth<__half>;
  for (const int64_t distance : distances) {
    if (distance % width != 0) return false;
  }
  for (const void* array : arrays) {
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0) return false;
  }
  return true;
}

/// Returns run(T(), width). A thread takes `width` elements at once: a pack or 1.
template <class Run>
cudaError_t with_width(ElementType type, bool packed, const Run& run) {
  return with_stored_type(type, [&](auto element) {
    if constexpr (sizeof(element) < sizeof(double)) {
      if (packed) return run(element, std::integral_constant<int, kPackWidth<decltype(element)>>());
    }
    return run(element, std::integral_constant<int, 1>());
  });
}

/// Returns run(T(), width, Team<...>()). A warp takes rows below kBlockRowColumns, a block longer ones.
template <class Run>
cudaError_t with_team(ElementType type, int64_t columns, bool packed, const Run& run) {
  return with_width(type, packed, [&](auto element, auto width) {
    return columns < kBlockRowColumns ? run(element, width, Team<kOpWarp>())
                                      : run(element, width, Team<kOpThreads>());
  });
}

/// Returns run(T(), width, Team<...>(), is_kept). `is_kept` says whether a team's threads can keep a row in
/// registers. The team is a warp if a warp can, otherwise a block.
template <class Run>
cudaError_t with_row(ElementType type, int64_t columns, bool packed, const Run& run) {
  return with_width(type, packed, [&](auto element, auto width) {
    if (columns <= int64_t{kept_columns(width)} * kOpWarp) {
      return run(element, width, Team<kOpWarp>(), std::true_type());
    }
    if (columns <= int64_t{kept_columns(width)} * kOpThreads) {
      return run(element, width, Team<kOpThreads>(), std::true_type());
    }
    return run(element, width, Team<kOpThreads>(), std::false_type());
  });
}

}  // namespace deepspeed::kernels
