// What shrinks messages, numbers in 8, 4 and 1 bits, on a CUDA device against the CPU. The device has no
// kernels of its own for them: torch's operators compute there.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/kernels/block_quantization.h"
#include "deepspeed/kernels/sign_compression.h"

#include "tests/cuda/require_cuda.h"

namespace deepspeed::kernels {
namespace {

using CudaMessages = testing::CudaTest;

// One element, an odd number, whole blocks, blocks with a rest.
const std::vector<int64_t> kMessageSizes = {1, 1003, kQuantizationBlock, 37 * kQuantizationBlock + 5};

at::Tensor waves(int64_t numel, at::ScalarType dtype) {
  const at::Tensor index = at::arange(numel, at::kDouble);
  return ((index * 0.37).sin() * (1.5 + (index * 0.011).cos())).to(dtype);
}

std::pair<at::Tensor, at::Tensor> quantized_and_back(const at::Tensor& values, BlockCode code) {
  const at::Tensor packed =
      at::zeros({quantized_bytes(values.numel(), code)}, values.options().dtype(at::kByte));
  const at::Tensor back = at::empty_like(values);
  quantize_blocks(values, packed, code);
  dequantize_blocks(packed, back, code);
  return {packed.cpu(), back.cpu()};
}

TEST_F(CudaMessages, QuantizedBlocksAreThoseOfTheCpu) {
  for (const int64_t numel : kMessageSizes) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
        SCOPED_TRACE(message(numel, " elements of ", dtype, " in code ", int(code)));
        const at::Tensor values = waves(numel, dtype);
        const auto [on_cpu, back_of_cpu] = quantized_and_back(values, code);
        const auto [on_cuda, back_of_cuda] = quantized_and_back(values.cuda(), code);
        // A quotient that is rounded otherwise may fall on the neighbouring code; bf16 rounds it once more.
        const double one_code = (code == BlockCode::kFloat8 ? 2.5 / 8 : 2.5 / largest_code(code)) + 0.01;
        EXPECT_GE(on_cuda.eq(on_cpu).to(at::kDouble).mean().item<double>(), numel < 100 ? 0.5 : 0.98);
        EXPECT_LE((back_of_cuda - back_of_cpu).abs().max().item<double>(), one_code);
        EXPECT_LE((back_of_cuda - values).abs().max().item<double>(), one_code);
      }
    }
  }
}

TEST_F(CudaMessages, WhatTheCpuQuantizedComesBackAlike) {
  for (const int64_t numel : kMessageSizes) {
    for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
      const at::Tensor values = waves(numel, at::kFloat);
      const auto [packed, expected] = quantized_and_back(values, code);
      const at::Tensor back = at::empty_like(values, values.options().device(at::kCUDA));
      scale_quantized(packed, numel, code, 0.5);
      dequantize_blocks(packed.cuda(), back, code);
      EXPECT_TRUE(at::allclose(back.cpu() * 2, expected, 1e-6, 0.0)) << numel << " in code " << int(code);
    }
  }
}

TEST_F(CudaMessages, BlocksOfZerosAndOfWhatIsNotFiniteAreThoseOfTheCpu) {
  at::Tensor values = waves(3 * kQuantizationBlock, at::kFloat);
  values.narrow(0, 0, kQuantizationBlock).zero_();
  values[kQuantizationBlock + 7] = std::numeric_limits<float>::infinity();
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
    const at::Tensor back = quantized_and_back(values.cuda(), code).second;
    EXPECT_TRUE(back.narrow(0, 0, kQuantizationBlock).eq(0).all().item<bool>());
    EXPECT_TRUE(back.narrow(0, kQuantizationBlock, kQuantizationBlock).isnan().all().item<bool>());
    EXPECT_TRUE(back.narrow(0, 2 * kQuantizationBlock, kQuantizationBlock).isfinite().all().item<bool>());
  }
}

TEST_F(CudaMessages, SignsAndTheirErrorsAreThoseOfTheCpu) {
  for (const int64_t blocks : {1, 5, 64}) {
    const int64_t numel = blocks * kSignBlock;
    const at::Tensor values = waves(numel, at::kFloat), errors = waves(numel, at::kFloat).cos() * 0.1;
    const at::Tensor packed = at::zeros({sign_bytes(numel)}, at::kByte), sums = at::ones({numel});
    const at::Tensor values_there = values.cuda(), errors_there = errors.cuda(), packed_there = packed.cuda(),
                     sums_there = sums.cuda();
    compress_signs(values, errors, packed);
    compress_signs(values_there, errors_there, packed_there);
    EXPECT_TRUE(values_there.cpu().equal(values));
    EXPECT_TRUE(packed_there.cpu().narrow(0, 0, numel / 8).equal(packed.narrow(0, 0, numel / 8)));
    EXPECT_TRUE(at::allclose(errors_there.cpu(), errors, 1e-5, 1e-5));
    add_signs(packed, sums);
    add_signs(packed_there, sums_there);
    EXPECT_TRUE(at::allclose(sums_there.cpu(), sums, 1e-5, 1e-5)) << blocks << " blocks";
  }
}

}  // namespace
}  // namespace deepspeed::kernels
