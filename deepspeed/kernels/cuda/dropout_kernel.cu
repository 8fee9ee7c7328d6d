// A thread takes one pack of a row at a time, whose random words come from whole Philox blocks. If rows are
// not aligned, a thread takes four elements, whose words come from one or two Philox blocks.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

constexpr int kWords = 4;

struct PhiloxBlock {
  uint32_t words[kWords];
};

__device__ PhiloxBlock philox_block(const Philox& philox, uint64_t counter) {
  auto c0 = uint32_t(counter), c1 = uint32_t(counter >> 32);
  auto c2 = uint32_t(philox.offset), c3 = uint32_t(philox.offset >> 32);
  auto key0 = uint32_t(philox.seed), key1 = uint32_t(philox.seed >> 32);
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint32_t high0 = __umulhi(kPhiloxMultiplier0, c0), low0 = kPhiloxMultiplier0 * c0;
    const uint32_t high1 = __umulhi(kPhiloxMultiplier1, c2), low1 = kPhiloxMultiplier1 * c2;
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

/// Returns the random words of the four elements that start at `index`.
__device__ PhiloxBlock words_from(const Philox& philox, int64_t index) {
  const PhiloxBlock block = philox_block(philox, uint64_t(index) / kWords);
  const int skipped = int(index % kWords);
  if (skipped == 0) return block;
  const PhiloxBlock next = philox_block(philox, uint64_t(index) / kWords + 1);
  PhiloxBlock result{};
  for (int k = 0; k < kWords; ++k) {
    // The compiler unrolls the loop to constant indices. A variable index would put the words into local
    // memory.
    uint32_t word = 0;
    for (int from = 0; from < 2 * kWords; ++from) {
      if (from == k + skipped) word = from < kWords ? block.words[from % kWords] : next.words[from % kWords];
    }
    result.words[k] = word;
  }
  return result;
}

/// Writes up to four outputs of a row, from `column` on. Adds them to `sums`.
template <class T>
__device__ void drop_four(const DropoutArrays& a, int64_t row, int64_t column, Wide<T> (&sums)[kWords]) {
  using W = Wide<T>;
  const int64_t first = row * a.rows.columns + column;
  const PhiloxBlock block = a.threshold != 0 ? words_from(a.philox, first) : PhiloxBlock{};
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    if (column + k >= a.rows.columns) return;
    W x = to_float(static_cast<const T*>(a.input)[first + k]);
    if (a.bias != nullptr) x = add_rn(x, parameter_at<T>(a.bias, a.parameter_type, column + k));
    if (a.threshold != 0) x = mul_rn(x, block.words[k] >= a.threshold ? W(a.scale) : W(0));
    if (a.residual != nullptr) x = add_rn(x, W(to_float(static_cast<const T*>(a.residual)[first + k])));
    round_to(x, static_cast<T*>(a.output)[first + k]);
    sums[k] = add_rn(sums[k], x);
  }
}

/// Writes a pack of a row's outputs, from `column` on. Adds them to `sums`.
template <class T, int kWidth>
__device__ void drop_pack(const DropoutArrays& a, int64_t row, int64_t column, Wide<T> (&sums)[kWidth]) {
  using W = Wide<T>;
  const int64_t first = row * a.rows.columns + column;
  W x[kWidth], others[kWidth];
  load_wide(static_cast<const T*>(a.input) + first, x);
  if (a.bias != nullptr) {
    load_parameters<T>(a.bias, a.parameter_type, column, others);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = add_rn(x[k], others[k]);
  }
  if (a.threshold != 0) {
#pragma unroll
    for (int begin = 0; begin < kWidth; begin += kWords) {
      const PhiloxBlock block = philox_block(a.philox, uint64_t(first + begin) / kWords);
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        x[begin + k] = mul_rn(x[begin + k], block.words[k] >= a.threshold ? W(a.scale) : W(0));
      }
    }
  }
  if (a.residual != nullptr) {
    load_wide(static_cast<const T*>(a.residual) + first, others);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) x[k] = add_rn(x[k], others[k]);
  }
  store_pack(rounded<T>(x), static_cast<T*>(a.output) + first);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sums[k] = add_rn(sums[k], x[k]);
}

/// Returns how many elements a thread takes at once: a pack, but at least four.
DEEPSPEED_ON_BOTH constexpr int taken(int width) { return width == 1 ? kWords : width; }

template <class T, int kWidth>
__device__ void drop(const DropoutArrays& a, int64_t row, int64_t column, Wide<T> (&sums)[taken(kWidth)]) {
  if constexpr (kWidth == 1) {
    drop_four<T>(a, row, column, sums);
  } else {
    drop_pack<T, kWidth>(a, row, column, sums);
  }
}

template <class T, int kWidth, class TheTeam>
__global__ void __launch_bounds__(kOpThreads) dropout_kernel(DropoutArrays a) {
  constexpr int kTaken = taken(kWidth);
  for_each_in_segments<TheTeam>(a.rows.rows, a.rows.columns, kTaken, [&](int64_t row, int64_t column) {
    Wide<T> unused[kTaken] = {};
    drop<T, kWidth>(a, row, column, unused);
  });
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kOpThreads) dropout_sums_kernel(DropoutArrays a) {
  constexpr int kTaken = taken(kWidth);
  const PartColumns at(a.rows, kTaken);
  if (at.column >= a.rows.columns) return;
  Wide<T> sums[kTaken] = {};
  const int64_t end = first_row(a.rows, at.part + 1);
  for (int64_t row = first_row(a.rows, at.part); row < end; ++row) {
    drop<T, kWidth>(a, row, at.column, sums);
  }
#pragma unroll
  for (int k = 0; k < kTaken; ++k) {
    if (at.column + k >= a.rows.columns) return;
    static_cast<Wide<T>*>(a.bias_parts)[at.part * a.rows.columns + at.column + k] = sums[k];
  }
}

}  // namespace

template <>
cudaError_t launch(const DropoutArrays& arrays, cudaStream_t stream) {
  const RowParts& rows = arrays.rows;
  const bool packed =
      are_packed(arrays.type, {rows.columns}, {arrays.input, arrays.bias, arrays.residual, arrays.output});
  if (arrays.bias_parts != nullptr) {
    return with_width(arrays.type, packed, [&](auto element, auto width) {
      return launch_kernel(&dropout_sums_kernel<decltype(element), width()>,
                           parts_shape(rows, taken(width()), stream), arrays);
    });
  }
  return with_team(arrays.type, rows.columns, packed, [&](auto element, auto width, auto team) {
    return launch_kernel(&dropout_kernel<decltype(element), width(), decltype(team)>,
                         segment_shape(rows.rows, rows.columns, decltype(team)::kThreads, stream), arrays);
  });
}

}  // namespace deepspeed::kernels
