#include "deepspeed/kernels/sign_compression.h"

#include <functional>

#include <ATen/Parallel.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/messages/message_kernels.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {
namespace {

/// Views the memory of compressed elements as bits and scales.
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

// Returns the tensor, or a copy if its address is not a multiple of 16. A kernel's threads read four elements
// at once, but a part of a tensor may begin anywhere.
at::Tensor aligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0 ? tensor : tensor.clone();
}

void compress_on_cuda(const at::Tensor& values, const at::Tensor& errors, const Signs& signs) {
  const at::Tensor x = aligned(values), error = aligned(errors);
  launch_on(values.device(), &CudaKernels::compress_signs, x.data_ptr<float>(), error.data_ptr<float>(),
            signs.bits.data_ptr<uint8_t>(), signs.scales.data_ptr<float>(), signs.scales.numel());
  if (!x.is_same(values)) values.copy_(x);
  if (!error.is_same(errors)) errors.copy_(error);
}

void add_on_cuda(const Signs& signs, const at::Tensor& sums) {
  const at::Tensor sum = aligned(sums);
  launch_on(sums.device(), &CudaKernels::add_signs, signs.bits.const_data_ptr<uint8_t>(),
            signs.scales.const_data_ptr<float>(), sum.data_ptr<float>(), signs.scales.numel());
  if (!sum.is_same(sums)) sums.copy_(sum);
}

}  // namespace

int64_t sign_bytes(int64_t numel) { return numel / 8 + numel / kSignBlock * int64_t(sizeof(float)); }

void compress_signs(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& packed) {
  check_signs(values, packed);
  check_array("errors", errors, {at::kFloat});
  check_fits("errors", errors, values.numel(), values.device());
  if (values.numel() == 0) return;
  const Signs signs(packed, values.numel());
  if (!values.is_cpu()) return compress_on_cuda(values, errors, signs);
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
  if (!sums.is_cpu()) return add_on_cuda(signs, sums);
  float* const sum = sums.data_ptr<float>();
  const auto* const bits = signs.bits.data_ptr<uint8_t>();
  const auto* const scales = signs.scales.data_ptr<float>();
  for_each_sign_block(sums.numel(), [=](int64_t block) {
    const int64_t begin = block * kSignBlock;
    add_sign_block(bits + begin / 8, scales[block], sum + begin, kSignBlock);
  });
}

}  // namespace deepspeed::kernels
