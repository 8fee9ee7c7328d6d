// What shrinks messages, numbers in 8, 4 and 1 bits, on a CUDA device against the CPU.
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
const std::vector<int64_t> kMessageSizes = {1, 255, 256, 1003, 2048, 37 * 2048 + 5};

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

/// Compares bits, and nan with nan.
bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a.to(at::kFloat), b.to(at::kFloat), 0, 0, /*equal_nan=*/true);
}

TEST_F(CudaMessages, QuantizedBlocksAreThoseOfTheCpuBitForBit) {
  for (const int64_t numel : kMessageSizes) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
        for (const double size : {1.0, 1e-6}) {
          SCOPED_TRACE(message(numel, " elements of ", dtype, " in code ", int(code), ", size ", size));
          const at::Tensor values = (waves(numel, at::kFloat) * size).to(dtype);
          const auto [on_cpu, back_of_cpu] = quantized_and_back(values, code);
          const auto [on_cuda, back_of_cuda] = quantized_and_back(values.cuda(), code);
          EXPECT_TRUE(on_cuda.equal(on_cpu));
          EXPECT_TRUE(back_of_cuda.equal(back_of_cpu));
        }
      }
    }
  }
}

TEST_F(CudaMessages, PartsOfATensorAreQuantizedEqually) {
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
    const at::Tensor whole = waves(5003, at::kFloat), there = whole.cuda();
    const auto [on_cpu, back_of_cpu] = quantized_and_back(whole.narrow(0, 3, 4999), code);
    const auto [on_cuda, back_of_cuda] = quantized_and_back(there.narrow(0, 3, 4999), code);
    EXPECT_TRUE(on_cuda.equal(on_cpu)) << int(code);
    EXPECT_TRUE(back_of_cuda.equal(back_of_cpu)) << int(code);
  }
}

TEST_F(CudaMessages, EveryFloat8ComesBack) {
  at::Tensor all = at::arange(256, at::kByte);
  all = all.masked_select(all.bitwise_and(0x7f) != 0x7f).view(at::kFloat8_e4m3fn).to(at::kFloat);
  const auto [packed, back] = quantized_and_back(all.cuda(), BlockCode::kFloat8);
  EXPECT_TRUE(back.view(at::kInt).equal(all.view(at::kInt)));
}

TEST_F(CudaMessages, SumsOfQuantizedBlocksAreThoseOfTheCpuBitForBit) {
  for (const int64_t numel : kMessageSizes) {
    for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
      const at::Tensor packed = quantized_and_back(waves(numel, at::kFloat), code).first;
      scale_quantized(packed, numel, code, 0.37);
      const at::Tensor sums = waves(numel, at::kFloat).cos(), sums_there = sums.cuda();
      add_quantized(packed, sums, code);
      add_quantized(packed.cuda(), sums_there, code);
      EXPECT_TRUE(sums_there.cpu().equal(sums)) << numel << " in code " << int(code);
    }
  }
}

TEST_F(CudaMessages, BlocksOfZerosSubnormalNumbersAndWhatIsNotFiniteAreThoseOfTheCpu) {
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
    const int64_t block = quantization_block(code);
    for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      at::Tensor values = waves(4 * block, at::kFloat);
      values.narrow(0, 0, block).zero_();
      values[block + 7] = odd;
      values.narrow(0, 3 * block, block).mul_(1e-39);
      const at::Tensor back = quantized_and_back(values.cuda(), code).second;
      EXPECT_TRUE(are_alike(back, quantized_and_back(values, code).second)) << int(code) << " " << odd;
      EXPECT_TRUE(back.narrow(0, block, block).isnan().all().item<bool>());
      EXPECT_TRUE(back.narrow(0, 2 * block, 2 * block).isfinite().all().item<bool>());
    }
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
