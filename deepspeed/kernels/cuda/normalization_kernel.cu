// A team normalizes a row. Its threads keep their elements in registers, so that memory is read only once. A
// row is read again only if it has more than kept_columns() elements per thread of a block.
//
// In backward a block takes the rows of a part. Its teams take these rows in turn, and each thread sums the
// gradients of weight and bias for its own columns. At the end the block adds up the sums of its teams.
#include "deepspeed/kernels/cuda/launches.h"
#include "deepspeed/kernels/cuda/op_rows.cuh"

namespace deepspeed::kernels {
namespace {

template <class T, int kWidth, class TheTeam, bool kKept>
__global__ void __launch_bounds__(kOpThreads, kKept ? 1 : kUnkeptBlocks) norm_kernel(NormArrays a) {
  using W = Wide<T>;
  using Packs = RowPacks<T, kWidth, TheTeam, kKept>;
  const W share = W(1) / W(a.columns);
  for (int64_t row = TheTeam::first(); row < a.rows; row += TheTeam::count()) {
    const T* const input = static_cast<const T*>(a.input) + row * a.columns;
    const T* x = input;
    Packs packs;
    W total = 0;
    if (a.residual != nullptr) {
      const T* const residual = static_cast<const T*>(a.residual) + row * a.columns;
      T* const sum = static_cast<T*>(a.sum) + row * a.columns;
      Packs::for_each(a.columns, [&](int pack, int64_t column) {
        W values[kWidth], others[kWidth];
        load_wide(input + column, values);
        load_wide(residual + column, others);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = add_rn(values[k], others[k]);
        const auto stored = rounded<T>(values);
        if (kKept) packs.kept[pack] = stored;
        store_pack(stored, sum + column);
      });
      x = sum;  // each thread reads only what it wrote
    } else {
      Packs::for_each(a.columns, [&](int pack, int64_t column) { packs.load(input, pack, column); });
    }
    W mean = 0;
    if (a.mean != nullptr) {
      Packs::for_each(a.columns, [&](int pack, int64_t column) {
        W values[kWidth];
        packs.get(x, pack, column, values);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) total += values[k];
      });
      mean = TheTeam::sum(total) * share;
      if (TheTeam::lane() == 0) static_cast<W*>(a.mean)[row] = mean;
    }
    W squares = 0;
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      W values[kWidth];
      packs.get(x, pack, column, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) squares += (values[k] - mean) * (values[k] - mean);
    });
    const W rstd = rsqrt(TheTeam::sum(squares) * share + W(a.eps));
    if (TheTeam::lane() == 0) static_cast<W*>(a.rstd)[row] = rstd;
    T* const output = static_cast<T*>(a.output) + row * a.columns;
    Packs::for_each(a.columns, [&](int pack, int64_t column) {
      W values[kWidth], parameters[kWidth];
      packs.get(x, pack, column, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = (values[k] - mean) * rstd;
      if (a.weight != nullptr) {
        load_parameters<T>(a.weight, a.parameter_type, column, parameters);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] *= parameters[k];
      }
      if (a.bias != nullptr) {
        load_parameters<T>(a.bias, a.parameter_type, column, parameters);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] += parameters[k];
      }
      store_pack(rounded<T>(values), output + column);
    });
  }
}

/// Turns stored elements of a row into normalized ones and multiplies gradients by the weight.
template <class T, int kWidth, bool kFromOutput>
struct Normalized {
  using W = Wide<T>;

  __device__ void at(int64_t column, W (&values)[kWidth], W (&gradients)[kWidth]) const {
    W weight[kWidth] = {};
    if (a.weight != nullptr) load_parameters<T>(a.weight, a.parameter_type, column, weight);
    if constexpr (!kFromOutput) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = (values[k] - mean) * rstd;
    } else {
      if (a.bias != nullptr) {
        W bias[kWidth];
        load_parameters<T>(a.bias, a.parameter_type, column, bias);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] -= bias[k];
      }
      if (a.weight != nullptr) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = quotient_for<T>(values[k], weight[k]);
      }
    }
    if (a.weight == nullptr) return;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] *= weight[k];
  }

  const NormBackwardArrays& a;
  W mean, rstd;
};

/// Adds up the column sums of a block's teams into `to`, [columns].
template <class W, int kWidth, class TheTeam, int kCount>
__device__ void write_sums(const W (&sums)[kCount][kWidth], int64_t columns, W* to) {
  if constexpr (TheTeam::kThreads == kOpThreads) {
#pragma unroll
    for (int pack = 0; pack < kCount; ++pack) {
      const int64_t column = (int64_t{pack} * kOpThreads + TheTeam::lane()) * kWidth;
      if (column >= columns) return;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) to[column + k] = sums[pack][k];
    }
  } else {
    __shared__ W of_teams[kOpWarps][kOpWarp * kWidth];
    const int team = int(threadIdx.x) / kOpWarp;
#pragma unroll
    for (int pack = 0; pack < kCount; ++pack) {
      const int64_t first = int64_t{pack} * kOpWarp * kWidth;
      if (first >= columns) return;  // the same for all threads
      __syncthreads();               // all threads have read the values of the previous turn
#pragma unroll
      for (int k = 0; k < kWidth; ++k) of_teams[team][TheTeam::lane() * kWidth + k] = sums[pack][k];
      __syncthreads();
      const int at = int(threadIdx.x);
      if (at >= kOpWarp * kWidth || first + at >= columns) continue;
      W sum = of_teams[0][at];
      for (int other = 1; other < kOpWarps; ++other) sum += of_teams[other][at];
      to[first + at] = sum;
    }
  }
}

/// Returns how many blocks of the backward kernel must fit on a multiprocessor at once. For 16-bit elements
/// (a width of 8) there are two: the loads of their 16 warps then overlap.
DEEPSPEED_ON_BOTH constexpr int blocks_at_once(int width) { return width == 8 ? 2 : 1; }

template <class T, int kWidth, class TheTeam, bool kKept, bool kFromOutput>
__global__ void __launch_bounds__(kOpThreads, blocks_at_once(kWidth))
    norm_backward_kernel(NormBackwardArrays a) {
  using W = Wide<T>;
  using Packs = RowPacks<T, kWidth, TheTeam, kKept>;
  const int64_t columns = a.rows.columns, part = blockIdx.x, end = first_row(a.rows, part + 1);
  W* const weight_parts =
      a.weight_parts == nullptr ? nullptr : static_cast<W*>(a.weight_parts) + part * columns;
  W* const bias_parts = a.bias_parts == nullptr ? nullptr : static_cast<W*>(a.bias_parts) + part * columns;
  // Rows that are not kept belong to a whole block, which sums directly in the output arrays.
  W weight_sums[Packs::kCount][kWidth] = {}, bias_sums[Packs::kCount][kWidth] = {};
  if (!kKept) {
    Packs::for_each(columns, [&](int, int64_t column) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (weight_parts != nullptr) weight_parts[column + k] = 0;
        if (bias_parts != nullptr) bias_parts[column + k] = 0;
      }
    });
  }
  constexpr int kTeams = kOpThreads / TheTeam::kThreads;
  const W share = W(1) / W(columns);
  for (int64_t row = first_row(a.rows, part) + int(threadIdx.x) / TheTeam::kThreads; row < end;
       row += kTeams) {
    const Normalized<T, kWidth, kFromOutput> normalized{
        a, a.mean == nullptr ? W(0) : static_cast<const W*>(a.mean)[row], static_cast<const W*>(a.rstd)[row]};
    const T* const stored = static_cast<const T*>(kFromOutput ? a.output : a.sum) + row * columns;
    const T* const grad_output = static_cast<const T*>(a.grad_output) + row * columns;
    Packs values, grads;
    W sum = 0, products = 0;
    Packs::for_each(columns, [&](int pack, int64_t column) {
      values.load(stored, pack, column);
      grads.load(grad_output, pack, column);
    });
    Packs::for_each(columns, [&](int pack, int64_t column) {
      W x[kWidth], g[kWidth], unweighted[kWidth];
      values.get(stored, pack, column, x);
      grads.get(grad_output, pack, column, g);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) unweighted[k] = g[k];
      normalized.at(column, x, g);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        sum += g[k];
        products += g[k] * x[k];
        if (kKept) {
          weight_sums[pack][k] += unweighted[k] * x[k];
          bias_sums[pack][k] += unweighted[k];
        } else {
          if (weight_parts != nullptr) weight_parts[column + k] += unweighted[k] * x[k];
          if (bias_parts != nullptr) bias_parts[column + k] += unweighted[k];
        }
      }
    });
    const W mean = a.is_rms ? W(0) : TheTeam::sum(sum) * share;
    const W product_mean = TheTeam::sum(products) * share;
    const T* const grad_sum = static_cast<const T*>(a.grad_sum) + (a.grad_sum == nullptr ? 0 : row * columns);
    T* const grad_input = static_cast<T*>(a.grad_input) + row * columns;
    Packs::for_each(columns, [&](int pack, int64_t column) {
      W x[kWidth], g[kWidth];
      values.get(stored, pack, column, x);
      grads.get(grad_output, pack, column, g);
      normalized.at(column, x, g);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) g[k] = normalized.rstd * (g[k] - mean - x[k] * product_mean);
      if (a.grad_sum != nullptr) {
        load_wide(grad_sum + column, x);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) g[k] += x[k];
      }
      store_pack(rounded<T>(g), grad_input + column);
    });
  }
  if constexpr (kKept) {
    if (weight_parts != nullptr) write_sums<W, kWidth, TheTeam>(weight_sums, columns, weight_parts);
    if (bias_parts != nullptr) write_sums<W, kWidth, TheTeam>(bias_sums, columns, bias_parts);
  }
}

}  // namespace

template <>
cudaError_t launch(const NormArrays& arrays, cudaStream_t stream) {
  const bool packed =
      are_packed(arrays.type, {arrays.columns},
                 {arrays.input, arrays.residual, arrays.weight, arrays.bias, arrays.output, arrays.sum});
  return with_row(arrays.type, arrays.columns, packed, [&](auto element, auto width, auto team, auto kept) {
    return launch_kernel(&norm_kernel<decltype(element), width(), decltype(team), kept()>,
                         team_shape(arrays.rows, decltype(team)::kThreads, stream), arrays);
  });
}

template <>
cudaError_t launch(const NormBackwardArrays& arrays, cudaStream_t stream) {
  const RowParts& rows = arrays.rows;
  const bool packed = are_packed(arrays.type, {rows.columns},
                                 {arrays.grad_output, arrays.grad_sum, arrays.sum, arrays.output,
                                  arrays.weight, arrays.bias, arrays.grad_input});
  return with_row(arrays.type, rows.columns, packed, [&](auto element, auto width, auto team, auto kept) {
    const LaunchShape shape{unsigned(rows.parts), kOpThreads, stream};
    if (arrays.output != nullptr) {
      return launch_kernel(&norm_backward_kernel<decltype(element), width(), decltype(team), kept(), true>,
                           shape, arrays);
    }
    return launch_kernel(&norm_backward_kernel<decltype(element), width(), decltype(team), kept(), false>,
                         shape, arrays);
  });
}

}  // namespace deepspeed::kernels
