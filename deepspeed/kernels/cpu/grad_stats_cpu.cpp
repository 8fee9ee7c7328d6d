#include "deepspeed/kernels/cpu/grad_stats_cpu.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/Parallel.h>

#include "deepspeed/kernels/cpu/grad_stats_simd.h"

namespace deepspeed::kernels {

double sum_of_squares_cpu(const void* values, ElementType type, int64_t numel) {
  constexpr int64_t kBlockNumel = 32768;
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
