#include "deepspeed/kernels/sign_compression.h"

#include <functional>

#include <ATen/Parallel.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/messages/sign_compression_simd.h"
#include "deepspeed/kernels/cuda/sign_compression_cuda.h"

namespace deepspeed::kernels {
namespace {

/// The memory of compressed elements, cut into its two parts.
struct Signs {
  Signs(const at::Tensor& packed, int64_t numel)
      : bits(packed.narrow(0, 0, numel / 8)),
        scales(packed.narrow(0, numel / 8, packed.numel() - numel / 8).view(at::kFloat)) {}
  at::Tensor bits, scales;
};

void check_signs(const at::Tensor& values, const at::Tensor& packed) {
  check_array("values", values, {at::kFloat});
  check_array("packed", packed, {at::kByte});
  if (values.numel() % kSignBlock != 0) {
    raise<UsageError>("values has ", values.numel(), " elements, expected a multiple of ", kSignBlock);
  }
  check_fits("packed", packed, sign_bytes(values.numel()), values.device());
  if (!values.is_cpu() && !values.is_cuda())
    raise<UsageError>("values lie on ", values.device(), ", expected CPU or CUDA");
}

void for_each_sign_block(int64_t numel, const std::function<void(int64_t block)>& work) {
  at::parallel_for(0, numel / kSignBlock, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) work(block);
  });
}

}  // namespace

int64_t sign_bytes(int64_t numel) { return numel / 8 + numel / kSignBlock * int64_t(sizeof(float)); }

void compress_signs(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& packed) {
  check_signs(values, packed);
  check_array("errors", errors, {at::kFloat});
  check_fits("errors", errors, values.numel(), values.device());
  if (values.numel() == 0) return;
  const Signs signs(packed, values.numel());
  if (!values.is_cpu()) return compress_signs_cuda(values, errors, signs.bits, signs.scales);
  float* const x = values.data_ptr<float>();
  float* const error = errors.data_ptr<float>();
  auto* const bits = signs.bits.data_ptr<uint8_t>();
  auto* const scales = signs.scales.data_ptr<float>();
  for_each_sign_block(values.numel(), [=](int64_t block) {
    const int64_t begin = block * kSignBlock;
    scales[block] = compress_sign_block(x + begin, error + begin, bits + begin / 8, kSignBlock);
  });
}

void add_signs(const at::Tensor& packed, const at::Tensor& sums) {
  check_signs(sums, packed);
  if (sums.numel() == 0) return;
  const Signs signs(packed, sums.numel());
  if (!sums.is_cpu()) return add_signs_cuda(signs.bits, signs.scales, sums);
  float* const sum = sums.data_ptr<float>();
  const auto* const bits = signs.bits.data_ptr<uint8_t>();
  const auto* const scales = signs.scales.data_ptr<float>();
  for_each_sign_block(sums.numel(), [=](int64_t block) {
    const int64_t begin = block * kSignBlock;
    add_sign_block(bits + begin / 8, scales[block], sum + begin, kSignBlock);
  });
}

}  // namespace deepspeed::kernels
