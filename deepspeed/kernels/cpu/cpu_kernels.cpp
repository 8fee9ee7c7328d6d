#include "deepspeed/kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <ATen/Parallel.h>

namespace deepspeed::kernels {
namespace {

// A thread's smallest piece. For Adam it is about 1 MB over all arrays, which is far more work than waking
// the thread. Sums use these blocks too, so another size would change their bits.
constexpr int64_t kBlockNumel = 32768;
// A smaller copy is likely to be read again while it is still cached.
constexpr int64_t kStreamFromNumel = int64_t{1} << 22;

}  // namespace

void adam_cpu(const AdamArrays& arrays, const AdamConstants& constants) {
  const bool is_only_written = arrays.low_precision != nullptr && arrays.low_precision != arrays.gradient &&
                               arrays.master_form == MasterForm::kFloat32;
  const bool stream = is_only_written && arrays.numel >= kStreamFromNumel;
  const int64_t num_blocks = (arrays.numel + kBlockNumel - 1) / kBlockNumel;
  at::parallel_for(0, num_blocks, 1, [&](int64_t first, int64_t last) {
    adam_simd(arrays, constants, first * kBlockNumel, std::min(last * kBlockNumel, arrays.numel), stream);
  });
}

void update_cpu(const UpdateArrays& arrays, const UpdateRule& rule) {
  const int64_t num_blocks = (arrays.numel + kBlockNumel - 1) / kBlockNumel;
  at::parallel_for(0, num_blocks, 1, [&](int64_t first, int64_t last) {
    update_simd(arrays, rule, first * kBlockNumel, std::min(last * kBlockNumel, arrays.numel));
  });
}

double sum_of_squares_cpu(const void* values, ElementType type, int64_t numel) {
  const int64_t num_blocks = (numel + kBlockNumel - 1) / kBlockNumel;
  std::vector<double> block_sums(static_cast<size_t>(num_blocks));
  at::parallel_for(0, num_blocks, 2, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      block_sums[static_cast<size_t>(block)] =
          sum_of_squares_simd(values, type, block * kBlockNumel, std::min((block + 1) * kBlockNumel, numel));
    }
  });
  return std::accumulate(block_sums.begin(), block_sums.end(), 0.0);
}

}  // namespace deepspeed::kernels
