// Distributes the fused operators over threads. Outputs are divided into blocks of elements or rows, of any
// size. Sums over rows use the caller's parts (RowParts), whatever the number of threads.
#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>

namespace deepspeed::kernels {
namespace {

// A thread's smallest piece in elements, about 10 microseconds.
constexpr int64_t kOpBlockNumel = 16384;

/// Calls run(begin, end) in threads for ranges of [0, count). Each index has `numel` elements.
template <class Run>
void share_out(int64_t count, int64_t numel, const Run& run) {
  const int64_t grain = std::max<int64_t>(1, kOpBlockNumel / std::max<int64_t>(1, numel));
  at::parallel_for(0, count, grain, run);
}

/// Calls run(part, the part's row of `sums`, zeroed) in threads for each part. That row is null if `sums` is.
template <class Run>
void share_out_parts(const RowParts& rows, void* sums, ElementType type, const Run& run) {
  const size_t bytes = static_cast<size_t>(rows.columns) * (type == ElementType::kFloat64 ? 8 : 4);
  at::parallel_for(0, rows.parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      char* const own =
          sums == nullptr ? nullptr : static_cast<char*>(sums) + static_cast<size_t>(part) * bytes;
      if (own != nullptr) std::fill_n(own, bytes, char{0});
      run(part, own);
    }
  });
}

}  // namespace

void run_cpu(const NormArrays& arrays) {
  share_out(arrays.rows, arrays.columns, [&](int64_t begin, int64_t end) { norm_simd(arrays, begin, end); });
}

void run_cpu(const NormBackwardArrays& arrays) {
  share_out_parts(arrays.rows, nullptr, arrays.type,
                  [&](int64_t part, void*) { norm_backward_simd(arrays, part); });
}

void run_cpu(const BiasGeluArrays& arrays) {
  const int64_t columns = arrays.rows.columns;
  if (arrays.bias_parts == nullptr) {
    return share_out(arrays.rows.rows * columns, 1, [&](int64_t begin, int64_t end) {
      if (arrays.backward) return bias_gelu_backward_simd(arrays, begin, end, nullptr);
      bias_gelu_simd(arrays, begin, end);
    });
  }
  share_out_parts(arrays.rows, arrays.bias_parts, arrays.type, [&](int64_t part, void* sums) {
    bias_gelu_backward_simd(arrays, first_row(arrays.rows, part) * columns,
                            first_row(arrays.rows, part + 1) * columns, sums);
  });
}

void run_cpu(const SwigluArrays& arrays) {
  auto* const rows_of = arrays.backward ? &swiglu_backward_simd : &swiglu_simd;
  share_out(arrays.rows, arrays.columns, [&](int64_t begin, int64_t end) { rows_of(arrays, begin, end); });
}

void run_cpu(const DropoutArrays& arrays) {
  const int64_t columns = arrays.rows.columns;
  if (arrays.bias_parts == nullptr) {
    return share_out(arrays.rows.rows * columns, 1,
                     [&](int64_t begin, int64_t end) { dropout_simd(arrays, begin, end, nullptr); });
  }
  share_out_parts(arrays.rows, arrays.bias_parts, arrays.type, [&](int64_t part, void* sums) {
    dropout_simd(arrays, first_row(arrays.rows, part) * columns, first_row(arrays.rows, part + 1) * columns,
                 sums);
  });
}

void run_cpu(const MaskedSoftmaxArrays& arrays) {
  share_out(arrays.rows, arrays.columns,
            [&](int64_t begin, int64_t end) { masked_softmax_simd(arrays, begin, end); });
}

void run_cpu(const SoftmaxBackwardArrays& arrays) {
  share_out(arrays.rows, arrays.columns,
            [&](int64_t begin, int64_t end) { softmax_backward_simd(arrays, begin, end); });
}

void run_cpu(const RotaryArrays& arrays) {
  share_out(arrays.batch * arrays.heads * arrays.positions, arrays.dim,
            [&](int64_t begin, int64_t end) { rotary_simd(arrays, begin, end); });
}

void run_cpu(const CrossEntropyArrays& arrays) {
  share_out(arrays.rows, arrays.columns,
            [&](int64_t begin, int64_t end) { cross_entropy_simd(arrays, begin, end); });
}

// One pass links the positions of each table row in order, and counts them. Threads then take ranges of
// distinct rows with similar numbers of positions.
void run_cpu(const EmbeddingGradientArrays& arrays) {
  const auto num_embeddings = static_cast<size_t>(arrays.num_embeddings);
  std::vector<int64_t> first(num_embeddings, -1), last(num_embeddings, -1), counts(num_embeddings, 0);
  std::vector<int64_t> next(static_cast<size_t>(arrays.positions), -1), rows;
  for (int64_t position = 0; position < arrays.positions; ++position) {
    const int64_t index = arrays.indices[position];
    if (index == arrays.padding_index) continue;
    const auto row = static_cast<size_t>(index);
    if (first[row] < 0) {
      first[row] = position;
      rows.push_back(index);
    } else {
      next[static_cast<size_t>(last[row])] = position;
    }
    last[row] = position;
    ++counts[row];
  }
  std::vector<int64_t> ends;  // cumulative numbers of positions per row
  int64_t total = 0;
  for (const int64_t row : rows) ends.push_back(total += counts[static_cast<size_t>(row)]);
  // A row belongs to the thread with its last position.
  const auto rows_before = [&](int64_t position) {
    return std::upper_bound(ends.begin(), ends.end(), position) - ends.begin();
  };
  const PositionChains chains{rows.data(), first.data(), next.data()};
  share_out(total, arrays.dim, [&](int64_t begin, int64_t end) {
    embedding_gradient_simd(arrays, chains, rows_before(begin), rows_before(end));
  });
}

}  // namespace deepspeed::kernels
