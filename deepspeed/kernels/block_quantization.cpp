#include "deepspeed/kernels/block_quantization.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/messages/block_quantization_simd.h"

namespace deepspeed::kernels {
namespace {

int64_t num_blocks_of(int64_t numel) { return (numel + kQuantizationBlock - 1) / kQuantizationBlock; }
int64_t code_bytes(int64_t numel, BlockCode code) {
  const int bits = bits_of(code);
  return (numel * bits / 8 + (numel * bits % 8 != 0) + 3) / 4 * 4;
}

void check_quantized(const at::Tensor& values, const at::Tensor& packed, BlockCode code) {
  check_array("values", values, {at::kFloat, at::kHalf, at::kBFloat16});
  check_array("packed", packed, {at::kByte});
  check_fits("packed", packed, quantized_bytes(values.numel(), code), values.device());
}

/// The memory of quantized elements, cut into its two parts.
struct Packed {
  Packed(const at::Tensor& packed, int64_t numel, BlockCode code)
      : codes(packed.narrow(0, 0, code_bytes(numel, code))),
        scales(packed.narrow(0, codes.numel(), packed.numel() - codes.numel()).view(at::kFloat)) {}
  at::Tensor codes, scales;
};

void for_each_block(const at::Tensor& values, const at::Tensor& packed, BlockCode code,
                    void (*work)(const QuantizedBlock&)) {
  const int64_t numel = values.numel();
  const Packed parts(packed, numel, code);
  const QuantizedBlock first{.values = values.data_ptr(),
                             .type = element_type(values.scalar_type()),
                             .codes = parts.codes.data_ptr<uint8_t>(),
                             .scale = parts.scales.data_ptr<float>(),
                             .code = code};
  at::parallel_for(0, num_blocks_of(numel), 16, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t offset = index * kQuantizationBlock;
      QuantizedBlock block = first;
      block.values = static_cast<char*>(first.values) + offset * values.element_size();
      block.codes += offset * bits_of(code) / 8;
      block.scale += index;
      block.numel = std::min(kQuantizationBlock, numel - offset);
      work(block);
    }
  });
}

/// Views the elements as (blocks, kQuantizationBlock) fp32, filled up with zeros.
at::Tensor blocks_of(const at::Tensor& values) {
  const int64_t missing = num_blocks_of(values.numel()) * kQuantizationBlock - values.numel();
  return at::constant_pad_nd(values.to(at::kFloat).view({-1}), {0, missing}).view({-1, kQuantizationBlock});
}

void quantize_by_torch(const at::Tensor& values, const at::Tensor& packed, BlockCode code) {
  const Packed parts(packed, values.numel(), code);
  const at::Tensor blocks = blocks_of(values);
  const at::Tensor largest = blocks.abs().amax(1);
  const double most = largest_code(code);
  at::Tensor scale = (most / largest).clamp_max(kLargestScale);
  scale = at::where(largest == 0, at::full_like(scale, 1), scale);
  at::Tensor codes = (blocks * scale.unsqueeze(1)).nan_to_num_(0, 0, 0);
  if (code == BlockCode::kFloat8) {
    codes = codes.clamp_(-most, most).to(at::kFloat8_e4m3fn).view(at::kByte).view({-1});
  } else {
    codes = codes.round_().clamp_(-most, most - 1).to(at::kChar).view(at::kByte).view({-1});
  }
  parts.scales.copy_(at::where(largest.isfinite(), 1 / scale, at::full_like(scale, NAN)));
  if (code == BlockCode::kInt4) {
    codes = codes.view({-1, 2});
    codes = codes.select(1, 0).bitwise_and(0xf).bitwise_or(codes.select(1, 1).bitwise_left_shift(4));
  }
  parts.codes.copy_(codes.narrow(0, 0, parts.codes.numel()));
}

void dequantize_by_torch(const at::Tensor& packed, const at::Tensor& values, BlockCode code) {
  const int64_t numel = values.numel();
  const Packed parts(packed, numel, code);
  at::Tensor codes = parts.codes;
  if (code == BlockCode::kInt4) {
    const at::Tensor bytes = codes.view(at::kChar).unsqueeze(1);
    const at::Tensor shifts = at::arange(4, -1, -4, bytes.options());
    codes = bytes.bitwise_left_shift(shifts).bitwise_right_shift(4).view({-1});
  }
  codes = codes.view(code == BlockCode::kFloat8 ? at::kFloat8_e4m3fn : at::kChar).narrow(0, 0, numel);
  const at::Tensor wide = (blocks_of(codes) * parts.scales.unsqueeze(1)).view({-1}).narrow(0, 0, numel);
  values.view({-1}).copy_(wide);
}

}  // namespace

int64_t quantized_bytes(int64_t numel, BlockCode code) {
  return code_bytes(numel, code) + num_blocks_of(numel) * static_cast<int64_t>(sizeof(float));
}

void scale_quantized(const at::Tensor& packed, int64_t numel, BlockCode code, double factor) {
  Packed(packed, numel, code).scales.mul_(factor);
}

void quantize_blocks(const at::Tensor& values, const at::Tensor& packed, BlockCode code) {
  check_quantized(values, packed, code);
  if (values.numel() == 0) return;
  if (values.is_cpu()) {
    for_each_block(values, packed, code, &quantize_block_simd);
  } else {
    quantize_by_torch(values, packed, code);
  }
}

void dequantize_blocks(const at::Tensor& packed, const at::Tensor& values, BlockCode code) {
  check_quantized(values, packed, code);
  if (values.numel() == 0) return;
  if (values.is_cpu()) {
    for_each_block(values, packed, code, &dequantize_block_simd);
  } else {
    dequantize_by_torch(packed, values, code);
  }
}

}  // namespace deepspeed::kernels
