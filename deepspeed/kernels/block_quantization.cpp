#include "deepspeed/kernels/block_quantization.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/messages/message_kernels.h"
#include "deepspeed/kernels/cuda/cuda_kernels.h"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kMostBlock = 2048;
// A thread gets at least this many elements.
constexpr int64_t kParallelElements = 1 << 15;

int64_t num_blocks_of(int64_t numel, BlockCode code) {
  return (numel + quantization_block(code) - 1) / quantization_block(code);
}
int64_t code_bytes(int64_t numel, BlockCode code) {
  const int bits = bits_of(code);
  return (numel * bits / 8 + (numel * bits % 8 != 0) + 3) / 4 * 4;
}

void check_quantized(const at::Tensor& values, const at::Tensor& packed, BlockCode code) {
  check_array("values", values, {at::kFloat, at::kHalf, at::kBFloat16});
  check_array("packed", packed, {at::kByte});
  check_fits("packed", packed, quantized_bytes(values.numel(), code), values.device());
  if (!values.is_cpu() && !values.is_cuda())
    raise<UsageError>("values lie on ", values.device(), ", expected CPU or CUDA");
}

/// Views the memory of quantized elements as codes and scales.
struct Packed {
  Packed(const at::Tensor& packed, int64_t numel, BlockCode code)
      : codes(packed.narrow(0, 0, code_bytes(numel, code))),
        scales(packed.narrow(0, codes.numel(), packed.numel() - codes.numel()).view(at::kFloat)) {}
  at::Tensor codes, scales;
};

static_assert(quantization_block(BlockCode::kInt8) <= kMostBlock &&
              quantization_block(BlockCode::kInt4) <= kMostBlock);

void for_each_block(const at::Tensor& values, const at::Tensor& packed, BlockCode code,
                    void (*work)(const QuantizedBlock&)) {
  const int64_t numel = values.numel();
  const Packed parts(packed, numel, code);
  const QuantizedBlock first{.values = values.data_ptr(),
                             .type = element_type(values.scalar_type()),
                             .codes = parts.codes.data_ptr<uint8_t>(),
                             .scale = parts.scales.data_ptr<float>(),
                             .code = code};
  const int64_t block_numel = quantization_block(code);
  at::parallel_for(0, num_blocks_of(numel, code), kParallelElements / block_numel,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t index = begin; index < end; ++index) {
                       const int64_t offset = index * block_numel;
                       QuantizedBlock block = first;
                       block.values = static_cast<char*>(first.values) + offset * values.element_size();
                       block.codes += offset * bits_of(code) / 8;
                       block.scale += index;
                       block.numel = std::min(block_numel, numel - offset);
                       work(block);
                     }
                   });
}

void add_quantized_block(const QuantizedBlock& block) {
  float terms[kMostBlock];
  QuantizedBlock dequantized = block;
  dequantized.values = terms;
  dequantize_block_simd(dequantized);
  auto* const sums = static_cast<float*>(block.values);
  for (int64_t i = 0; i < block.numel; ++i) sums[i] += terms[i];
}

void launch_on_values(CudaKernels::Launch<const QuantizedArray&> CudaKernels::*kernel,
                      const at::Tensor& values, const at::Tensor& packed, BlockCode code) {
  const Packed parts(packed, values.numel(), code);
  const QuantizedArray array{.values = values.data_ptr(),
                             .type = element_type(values.scalar_type()),
                             .numel = values.numel(),
                             .codes = parts.codes.data_ptr<uint8_t>(),
                             .scales = parts.scales.data_ptr<float>(),
                             .code = code};
  launch_on(values.device(), kernel, array);
}

}  // namespace

int64_t quantized_bytes(int64_t numel, BlockCode code) {
  return code_bytes(numel, code) + num_blocks_of(numel, code) * static_cast<int64_t>(sizeof(float));
}

void scale_quantized(const at::Tensor& packed, int64_t numel, BlockCode code, double factor) {
  Packed(packed, numel, code).scales.mul_(factor);
}

void quantize_blocks(const at::Tensor& values, const at::Tensor& packed, BlockCode code) {
  check_quantized(values, packed, code);
  if (values.numel() == 0) return;
  if (values.is_cpu()) return for_each_block(values, packed, code, &quantize_block_simd);
  launch_on_values(&CudaKernels::quantize, values, packed, code);
}

void dequantize_blocks(const at::Tensor& packed, const at::Tensor& values, BlockCode code) {
  check_quantized(values, packed, code);
  if (values.numel() == 0) return;
  if (values.is_cpu()) return for_each_block(values, packed, code, &dequantize_block_simd);
  launch_on_values(&CudaKernels::dequantize, values, packed, code);
}

void add_quantized(const at::Tensor& packed, const at::Tensor& sums, BlockCode code) {
  check_array("sums", sums, {at::kFloat});
  check_quantized(sums, packed, code);
  if (sums.numel() == 0) return;
  if (sums.is_cpu()) return for_each_block(sums, packed, code, &add_quantized_block);
  launch_on_values(&CudaKernels::add_quantized, sums, packed, code);
}

}  // namespace deepspeed::kernels
