#include "deepspeed/kernels/block_quantization.h"

#include <cmath>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

at::Tensor packed_of(const at::Tensor& values, int bits) {
  at::Tensor packed = at::full({quantized_bytes(values.numel(), bits)}, 0xa5, at::kByte);
  quantize_blocks(values, packed, bits);
  return packed;
}

at::Tensor round_trip(const at::Tensor& values, int bits) {
  at::Tensor back = at::full_like(values, 7);
  dequantize_blocks(packed_of(values, bits), back, bits);
  return back;
}

/// DeepSpeed's formula, block by block, by torch.
at::Tensor expected_of(const at::Tensor& values, int bits) {
  std::vector<at::Tensor> blocks;
  const float half_range = float(1 << (bits - 1));
  for (const at::Tensor& block : values.to(at::kFloat).split(kQuantizationBlock)) {
    const float largest = block.abs().max().item<float>();
    const float scale = largest == 0 ? 1 : half_range / largest;
    const at::Tensor codes = (block * scale).round().clamp(-half_range, half_range - 1);
    blocks.push_back(codes * (1 / scale));
  }
  return at::cat(blocks).to(values.scalar_type());
}

TEST(BlockQuantization, IsDeepSpeedsFormulaForEveryDtypeSizeAndInstructionSet) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int bits : {8, 4}) {
        for (const int64_t numel : {1, 2, 7, 33, 2047, 2048, 2049, 10001}) {
          const at::Tensor values = at::randn({numel}).mul(0.3).to(dtype);
          const at::Tensor back = round_trip(values, bits), expected = expected_of(values, bits);
          EXPECT_TRUE(back.equal(expected)) << target << " " << dtype << " " << bits << " bits, " << numel;
        }
      }
    }
  }
}

TEST(BlockQuantization, StaysWithinItsBoundElementByElement) {
  for (const int bits : {8, 4}) {
    const at::Tensor values = at::randn({5, kQuantizationBlock}) * at::logspace(-6, 6, 5).unsqueeze(1);
    const at::Tensor error = (round_trip(values.view({-1}), bits).view_as(values) - values).abs();
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
  const at::Tensor codes = packed_of(values, 8);
  EXPECT_TRUE(codes.narrow(0, 0, 5).view(at::kChar).equal(at::tensor({127, -128, 64, 32, 0}, at::kChar)));
  EXPECT_EQ(codes.narrow(0, 8, 4).view(at::kFloat).item<float>(), 1.0F / 128);
  const at::Tensor halves = packed_of(values, 4);
  EXPECT_TRUE(halves.narrow(0, 0, 3).equal(at::tensor({0x87, 0x24, 0x00}, at::kByte)));
  EXPECT_EQ(halves.narrow(0, 4, 4).view(at::kFloat).item<float>(), 1.0F / 8);
}

TEST(BlockQuantization, TakesZerosSubnormalNumbersAndWhatIsNotFinite) {
  EXPECT_TRUE(round_trip(at::zeros({5000}), 8).equal(at::zeros({5000})));
  const at::Tensor tiny = at::full({9}, 1e-39F);
  EXPECT_TRUE(round_trip(tiny, 8).isfinite().all().item<bool>());
  for (const double odd : {double(INFINITY), double(-INFINITY), double(NAN)}) {
    at::Tensor values = at::ones({3 * kQuantizationBlock});
    values[kQuantizationBlock + 5] = odd;
    const at::Tensor is_nan = round_trip(values, 8).isnan().view({3, -1});
    EXPECT_TRUE(is_nan[1].all().item<bool>()) << odd;
    EXPECT_FALSE(is_nan[0].any().item<bool>() || is_nan[2].any().item<bool>()) << odd;
  }
}

TEST(BlockQuantization, TakesAQuarterOfFp32AndLess) {
  EXPECT_EQ(quantized_bytes(0, 8), 0);
  EXPECT_EQ(quantized_bytes(5, 8), 8 + 4);
  EXPECT_EQ(quantized_bytes(5, 4), 4 + 4);
  EXPECT_EQ(quantized_bytes(1 << 20, 8), (1 << 20) + 4 * 512);
}

TEST(BlockQuantization, RefusesWhatDoesNotFit) {
  const at::Tensor values = at::ones({8});
  EXPECT_TRUE(testing::throws_error<UsageError>(
      [&] { quantize_blocks(values, at::empty({11}, at::kByte), 8); }, {"packed"}));
  EXPECT_TRUE(testing::throws_error<UsageError>(
      [&] { quantize_blocks(values, at::empty({12}, at::kByte), 5); }, {"bits is 5"}));
  EXPECT_TRUE(testing::throws_error<UsageError>(
      [&] { quantize_blocks(at::ones({8}, at::kDouble), at::empty({12}, at::kByte), 8); }, {"values"}));
}

}  // namespace
}  // namespace deepspeed::kernels
