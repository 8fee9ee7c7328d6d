#include "deepspeed/kernels/cpu/update_cpu.h"

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>

#include "deepspeed/kernels/cpu/update_simd.h"

namespace deepspeed::kernels {

void update_cpu(const UpdateArrays& arrays, const UpdateRule& rule) {
  constexpr int64_t kBlockNumel = 32768;  // elements of a thread's smallest piece
  const int64_t num_blocks = (arrays.numel + kBlockNumel - 1) / kBlockNumel;
  at::parallel_for(0, num_blocks, 1, [&](int64_t first, int64_t last) {
    update_simd(arrays, rule, first * kBlockNumel, std::min(last * kBlockNumel, arrays.numel));
  });
}

}  // namespace deepspeed::kernels
