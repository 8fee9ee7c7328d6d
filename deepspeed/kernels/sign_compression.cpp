#include "deepspeed/kernels/sign_compression.h"

#include <functional>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/messages/sign_compression_simd.h"

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
}

void for_each_sign_block(int64_t numel, const std::function<void(int64_t block)>& work) {
  at::parallel_for(0, numel / kSignBlock, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) work(block);
  });
}

at::Tensor bit_weights(const at::Tensor& like) { return at::arange(8, like.options().dtype(at::kByte)); }

void compress_by_torch(const at::Tensor& values, const at::Tensor& errors, const Signs& signs) {
  values.add_(errors);
  const at::Tensor blocks = values.view({-1, kSignBlock});
  const at::Tensor scales = blocks.square().mean(1).sqrt_();
  signs.scales.copy_(scales);
  const at::Tensor is_positive = values >= 0;
  signs.bits.copy_(is_positive.view({-1, 8}).to(at::kByte).bitwise_left_shift(bit_weights(values)).sum(1));
  const at::Tensor wide = scales.unsqueeze(1).expand({-1, kSignBlock}).reshape({-1});
  errors.copy_(values - at::where(is_positive, wide, -wide));
}

void add_by_torch(const Signs& signs, const at::Tensor& sums) {
  const at::Tensor bits =
      signs.bits.unsqueeze(1).bitwise_right_shift(bit_weights(sums)).bitwise_and(1).view({-1, kSignBlock});
  sums.view({-1, kSignBlock}).add_((bits.to(at::kFloat) * 2 - 1) * signs.scales.unsqueeze(1));
}

}  // namespace

int64_t sign_bytes(int64_t numel) { return numel / 8 + numel / kSignBlock * int64_t(sizeof(float)); }

void compress_signs(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& packed) {
  check_signs(values, packed);
  check_array("errors", errors, {at::kFloat});
  check_fits("errors", errors, values.numel(), values.device());
  if (values.numel() == 0) return;
  const Signs signs(packed, values.numel());
  if (!values.is_cpu()) return compress_by_torch(values, errors, signs);
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
  if (!sums.is_cpu()) return add_by_torch(signs, sums);
  float* const sum = sums.data_ptr<float>();
  const auto* const bits = signs.bits.data_ptr<uint8_t>();
  const auto* const scales = signs.scales.data_ptr<float>();
  for_each_sign_block(sums.numel(), [=](int64_t block) {
    const int64_t begin = block * kSignBlock;
    add_sign_block(bits + begin / 8, scales[block], sum + begin, kSignBlock);
  });
}

}  // namespace deepspeed::kernels
