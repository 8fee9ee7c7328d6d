#include "deepspeed/kernels/cpu/adam_cpu.h"

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>

#include "deepspeed/kernels/cpu/adam_simd.h"

namespace deepspeed::kernels {
namespace {

// A thread's smallest piece: about 1 MB over all arrays, far above the cost of waking it.
constexpr int64_t kBlockNumel = 32768;
// A copy that is smaller is likely to be read again while it is still in the caches.
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

}  // namespace deepspeed::kernels
