#include "deepspeed/kernels/block_quantization.h"

#include <cmath>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

at::Tensor packed_of(const at::Tensor& values, BlockCode code) {
  at::Tensor packed = at::full({quantized_bytes(values.numel(), code)}, 0xa5, at::kByte);
  quantize_blocks(values, packed, code);
  return packed;
}

at::Tensor round_trip(const at::Tensor& values, BlockCode code) {
  at::Tensor back = at::full_like(values, 7);
  dequantize_blocks(packed_of(values, code), back, code);
  return back;
}

/// DeepSpeed's formula, or that of fp8, block by block, by torch.
at::Tensor expected_of(const at::Tensor& values, BlockCode code) {
  std::vector<at::Tensor> blocks;
  const float most = largest_code(code);
  for (const at::Tensor& block : values.to(at::kFloat).split(quantization_block(code))) {
    const float largest = block.abs().max().item<float>();
    const float scale = largest == 0 ? 1 : most / largest;
    const at::Tensor scaled = block * scale;
    const at::Tensor codes = code == BlockCode::kFloat8
                                 ? scaled.clamp(-most, most).to(at::kFloat8_e4m3fn).to(at::kFloat)
                                 : scaled.round().clamp(-most, most - 1);
    blocks.push_back(codes * (1 / scale));
  }
  return at::cat(blocks).to(values.scalar_type());
}

TEST(BlockQuantization, IsDeepSpeedsFormulaForEveryDtypeSizeAndInstructionSet) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
        for (const int64_t numel : {1, 2, 7, 33, 255, 257, 2047, 2048, 2049, 10001}) {
          const at::Tensor values = at::randn({numel}).mul(0.3).to(dtype);
          const at::Tensor back = round_trip(values, code), expected = expected_of(values, code);
          EXPECT_TRUE(back.equal(expected))
              << target << " " << dtype << " code " << int(code) << ", " << numel;
        }
      }
    }
  }
}

TEST(BlockQuantization, StaysWithinItsBoundElementByElement) {
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4}) {
    const int bits = bits_of(code);
    const at::Tensor values = at::randn({5, quantization_block(code)}) * at::logspace(-6, 6, 5).unsqueeze(1);
    const at::Tensor error = (round_trip(values.view({-1}), code).view_as(values) - values).abs();
    const at::Tensor bound = values.abs().amax(1, true) / double(1 << (bits - 1));
    EXPECT_TRUE((error <= bound * (1 + 1e-4)).all().item<bool>()) << bits;
    // All but the largest of a sign are rounded to the nearest code.
    const at::Tensor is_clamped = values > bound * ((1 << (bits - 1)) - 0.5);
    // The products with scales up to 2^7 codes away from 0 are rounded to fp32 as well.
    EXPECT_TRUE(((error <= bound * 0.50002) | is_clamped).all().item<bool>()) << bits;
  }
}

TEST(BlockQuantization, HasTheCodesOfTheFormula) {
  const at::Tensor values = at::tensor({1.0F, -1.0F, 0.5F, 0.25F, 0.0F});
  const at::Tensor codes = packed_of(values, BlockCode::kInt8);
  EXPECT_TRUE(codes.narrow(0, 0, 5).view(at::kChar).equal(at::tensor({127, -128, 64, 32, 0}, at::kChar)));
  EXPECT_EQ(codes.narrow(0, 8, 4).view(at::kFloat).item<float>(), 1.0F / 128);
  const at::Tensor halves = packed_of(values, BlockCode::kInt4);
  EXPECT_TRUE(halves.narrow(0, 0, 3).equal(at::tensor({0x87, 0x24, 0x00}, at::kByte)));
  EXPECT_EQ(halves.narrow(0, 4, 4).view(at::kFloat).item<float>(), 1.0F / 8);
}

// Every scale is 1: the largest absolute value is 448.
TEST(BlockQuantization, HasTheCodesOfE4m3) {
  const at::Tensor values =
      at::tensor({448.0F, -448.0F, 1.0F, 0.0F, -0x1p-9F, 7 * 0x1p-9F, 0x1p-6F, 17.0F, 19.0F});
  const at::Tensor codes = packed_of(values, BlockCode::kFloat8);
  const at::Tensor expected = at::tensor({0x7e, 0xfe, 0x38, 0x00, 0x81, 0x07, 0x08, 0x58, 0x5a}, at::kByte);
  EXPECT_TRUE(codes.narrow(0, 0, 9).equal(expected)) << codes;
  EXPECT_EQ(codes.narrow(0, 12, 4).view(at::kFloat).item<float>(), 1.0F);
}

TEST(BlockQuantization, KeepsAllNumbersOfE4m3) {
  at::Tensor all = at::arange(256, at::kByte);
  all = all.masked_select(all.bitwise_and(0x7f) != 0x7f).view(at::kFloat8_e4m3fn).to(at::kFloat);
  EXPECT_EQ(all.numel(), 254);
  EXPECT_TRUE(round_trip(all, BlockCode::kFloat8).view(at::kInt).equal(all.view(at::kInt)));
}

TEST(BlockQuantization, KeepsFloatsWithinItsBoundElementByElement) {
  // Elements of very different sizes share a block.
  const int64_t numel = quantization_block(BlockCode::kFloat8);
  const at::Tensor values = at::randn({5, numel}) * at::logspace(-6, 0, numel);
  const at::Tensor error = (round_trip(values.view({-1}), BlockCode::kFloat8).view_as(values) - values).abs();
  const at::Tensor least = values.abs().amax(1, true) / (448.0 * 1024);
  EXPECT_TRUE((error <= at::maximum(values.abs() / 16, least) * 1.0001).all().item<bool>());
}

TEST(BlockQuantization, TakesZerosSubnormalNumbersAndWhatIsNotFinite) {
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
    EXPECT_TRUE(round_trip(at::zeros({5000}), code).equal(at::zeros({5000})));
    const at::Tensor tiny = at::full({9}, 1e-39F);
    EXPECT_TRUE(round_trip(tiny, code).isfinite().all().item<bool>());
    for (const double odd : {double(INFINITY), double(-INFINITY), double(NAN)}) {
      at::Tensor values = at::ones({3 * quantization_block(code)});
      values[quantization_block(code) + 5] = odd;
      const at::Tensor is_nan = round_trip(values, code).isnan().view({3, -1});
      EXPECT_TRUE(is_nan[1].all().item<bool>()) << odd;
      EXPECT_FALSE(is_nan[0].any().item<bool>() || is_nan[2].any().item<bool>()) << odd;
    }
  }
}

TEST(BlockQuantization, TakesAQuarterOfFp32AndLess) {
  EXPECT_EQ(quantized_bytes(0, BlockCode::kInt8), 0);
  EXPECT_EQ(quantized_bytes(5, BlockCode::kInt8), 8 + 4);
  EXPECT_EQ(quantized_bytes(5, BlockCode::kInt4), 4 + 4);
  EXPECT_EQ(quantized_bytes(1 << 20, BlockCode::kInt8), (1 << 20) + 4 * 512);
  EXPECT_EQ(quantized_bytes(1 << 20, BlockCode::kInt4), (1 << 19) + 4 * 4096);
  EXPECT_EQ(quantized_bytes(5, BlockCode::kFloat8), 8 + 4);
}

TEST(BlockQuantization, IsAddedWithoutACopy) {
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kInt4, BlockCode::kFloat8}) {
    for (const int64_t numel : {1, 255, 2049, 100001}) {
      const at::Tensor values = at::randn({numel}), sums = at::randn({numel});
      const at::Tensor expected = sums + round_trip(values, code);
      add_quantized(packed_of(values, code), sums, code);
      EXPECT_TRUE(sums.equal(expected)) << int(code) << " " << numel;
    }
  }
  EXPECT_ERROR(UsageError,
               add_quantized(at::zeros({12}, at::kByte), at::zeros({8}, at::kHalf), BlockCode::kInt8),
               "sums");
}

TEST(BlockQuantization, RefusesWhatDoesNotFit) {
  const at::Tensor values = at::ones({8});
  EXPECT_TRUE(testing::throws_error<UsageError>(
      [&] { quantize_blocks(values, at::empty({11}, at::kByte), BlockCode::kInt8); }, {"packed"}));
  EXPECT_TRUE(testing::throws_error<UsageError>(
      [&] { quantize_blocks(at::ones({8}, at::kDouble), at::empty({12}, at::kByte), BlockCode::kInt8); },
      {"values"}));
}

}  // namespace
}  // namespace deepspeed::kernels
