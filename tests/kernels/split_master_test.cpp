#include "deepspeed/kernels/split_master.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/kernels/adam.h"

#include "tests/kernels/adam_case.h"
#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

struct Halves {
  uint16_t upper = 0;
  int32_t lower = 0;
};

// The slow and obvious split, in arithmetic of 64 bits.
Halves reference_split(uint32_t bits) {
  if (std::isnan(std::bit_cast<float>(bits))) return {0x7fc0, 0};
  const int64_t upper = (int64_t{bits} + 0x8000) / 0x10000;
  return {static_cast<uint16_t>(upper), static_cast<int32_t>(int64_t{bits} - upper * 0x10000)};
}

// Every upper half with lower ones about 0, about a half, and at the ends.
at::Tensor all_kinds_of_masters() {
  const at::Tensor upper = at::arange(-32768, 32768, at::kInt).mul(65536);
  std::vector<at::Tensor> parts;
  for (const int lower :
       {0, 1, 2, 0x1234, 0x3fff, 0x4000, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xc000, 0xedcb, 0xfffe, 0xffff})
    parts.push_back(upper.bitwise_or(lower));
  return at::cat(parts).view(at::kFloat);
}

TEST(SplitMaster, SplitsAsTheReferenceAndJoinsToTheSameBits) {
  const at::Tensor masters = all_kinds_of_masters();
  const int64_t numel = masters.numel();
  const at::Tensor upper = at::empty({numel}, at::kBFloat16), lower = at::empty({numel}, at::kShort);
  split_master(masters, upper, lower);
  const at::Tensor joined = join_master(upper, lower);
  const auto* const bits = static_cast<const uint32_t*>(masters.const_data_ptr());
  const auto* const upper_bits = static_cast<const uint16_t*>(upper.const_data_ptr());
  const auto* const joined_bits = static_cast<const uint32_t*>(joined.const_data_ptr());
  for (int64_t i = 0; i < numel; ++i) {
    const Halves expected = reference_split(bits[i]);
    ASSERT_EQ(upper_bits[i], expected.upper) << std::hex << bits[i];
    ASSERT_EQ(lower.const_data_ptr<int16_t>()[i], expected.lower) << std::hex << bits[i];
    ASSERT_EQ(joined_bits[i], std::isnan(std::bit_cast<float>(bits[i])) ? 0x7fc00000U : bits[i]);
  }
}

TEST(SplitMaster, TheWeightIsThatOfTorchButAtHalvesThatTorchRoundsTowardsZero) {
  const at::Tensor masters = all_kinds_of_masters();
  const at::Tensor upper = at::empty({masters.numel()}, at::kBFloat16);
  split_master(masters, upper, at::empty({masters.numel()}, at::kShort));
  const at::Tensor of_torch = masters.to(at::kBFloat16);
  const at::Tensor is_such_a_half =
      masters.view(at::kInt).bitwise_and(0x1ffff).eq(0x8000).logical_and_(masters.isnan().logical_not_());
  const at::Tensor differs = upper.ne(of_torch).logical_and_(masters.isnan().logical_not_());
  EXPECT_TRUE(at::equal(differs, is_such_a_half));
  const at::Tensor next = of_torch.view(at::kShort).add(1).view(at::kBFloat16);
  EXPECT_TRUE(at::equal(upper.index({is_such_a_half}), next.index({is_such_a_half})));
  EXPECT_TRUE(upper.index({masters.isnan()}).isnan().all().item<bool>());
}

TEST(SplitMaster, ReadsZeroIfAWeightWasSetToZero) {
  const at::Tensor lower = at::arange(-32768, 32768, at::kInt).to(at::kShort);
  for (const double zero : {0.0, -0.0}) {
    const at::Tensor upper = at::full({65536}, zero, at::kBFloat16);
    const at::Tensor joined = join_master(upper, lower);
    EXPECT_TRUE(joined.abs().le(1e-40).all().item<bool>());
    EXPECT_TRUE(joined.index({lower.lt(0)}).eq(0).all().item<bool>());
  }
}

TEST(SplitMaster, WritesIntoWhatIsThere) {
  const at::Tensor masters = at::linspace(-3, 3, (1 << 17) + 5);  // more than a piece
  const at::Tensor upper = at::zeros({masters.numel() + 1}, at::kBFloat16),
                   lower = at::zeros_like(upper, at::kShort);
  split_master(masters, upper.narrow(0, 1, masters.numel()), lower.narrow(0, 1, masters.numel()));
  EXPECT_EQ(upper[0].item<float>(), 0);
  const at::Tensor joined = at::zeros({masters.numel()});
  join_master_into(joined, upper.narrow(0, 1, masters.numel()), lower.narrow(0, 1, masters.numel()));
  EXPECT_TRUE(same_bits(joined, masters));
}

TEST(SplitMaster, NamesTheHalfThatDoesNotFit) {
  const auto error_of = [](const at::Tensor& upper, const at::Tensor& lower) {
    return testing::error_of<UsageError>([&] { join_master(upper, lower); });
  };
  EXPECT_NE(error_of(at::zeros({4}, at::kHalf), at::zeros({4}, at::kShort)).find("upper has dtype Half"),
            std::string::npos);
  EXPECT_NE(error_of(at::zeros({4}, at::kBFloat16), at::zeros({4}, at::kInt)).find("lower has dtype Int"),
            std::string::npos);
  EXPECT_NE(error_of(at::zeros({4}, at::kBFloat16), at::zeros({3}, at::kShort)).find("lower has 3 elements"),
            std::string::npos);
}

TEST(AdamSplitMaster, IsTheUpdateOfFp32MastersBitForBit) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      for (const auto gradient : gradients()) {
        for (const int64_t numel : {0, 1, 7, 64, 65, 4099}) {
          for (const bool adamw : {true, false}) {
            const AdamTensors whole = make_tensors({numel, gradient, moments, at::kBFloat16}, 5);
            const AdamTensors halves = split(whole);
            AdamStep step = hyperparameters();
            step.adamw_mode = adamw;
            for (step.step = 1; step.step <= 20; ++step.step) {
              step.rounding_seed = static_cast<uint64_t>(step.step);
              adam(whole, step);
              adam(halves, step);
            }
            expect_same_update(halves, whole, message(target, " ", moments, " ", gradient, " ", numel));
          }
        }
      }
    }
  }
}

TEST(AdamSplitMaster, IsThatOfFp32MastersOnAnyNumberOfThreadsAndPlaces) {
  const SimdTargetGuard guard;
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      const int64_t numel = (int64_t{1} << 22) + 3;
      const AdamTensors whole = make_tensors({numel, at::kBFloat16, moments, at::kBFloat16}, 8);
      AdamTensors halves = split(whole);
      for (at::Tensor* half : {&halves.master, &halves.low_precision}) {  // not aligned
        const at::Tensor moved = at::full({numel + 2}, 3, half->options());
        moved.narrow(0, 1, numel).copy_(*half);
        *half = moved.narrow(0, 1, numel);
      }
      AdamStep step = hyperparameters();
      step.first_index = 5;
      adam(whole, step);
      adam(halves, step);
      expect_same_update(halves, whole, message(threads, " threads, ", moments));
      for (const at::Tensor& half : {halves.master, halves.low_precision}) {
        const at::Tensor around = half.as_strided({2}, {numel + 1}, 0);
        EXPECT_TRUE(around.eq(3).all().item<bool>());
      }
    }
  }
}

// With a rate of 0 a step leaves the masters as they are, but for infinity - 0 * infinity.
TEST(AdamSplitMaster, KeepsEveryKindOfMaster) {
  const SimdTargetGuard guard;
  AdamStep step;
  step.lr = 0;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      AdamTensors whole;
      whole.master = all_kinds_of_masters();
      const at::Tensor before = whole.master.clone();
      whole.gradient = at::ones_like(before);
      whole.exp_avg = at::zeros_like(before, moments);
      whole.exp_avg_sq = at::zeros_like(before, moments);
      const AdamTensors halves = split(whole);
      adam(halves, step);
      const at::Tensor after = join_master(halves.low_precision, halves.master);
      adam(whole, step);
      const at::Tensor is_finite = before.isfinite();
      EXPECT_TRUE(same_bits(after.index({is_finite}), whole.master.index({is_finite}))) << target << moments;
      EXPECT_TRUE(at::equal(after.index({is_finite}), before.index({is_finite}))) << target << moments;
      EXPECT_TRUE(at::equal(after.isnan(), whole.master.isnan())) << target << moments;
      EXPECT_TRUE(at::equal(halves.low_precision.isnan(), whole.master.isnan())) << target << moments;
    }
  }
}

TEST(AdamSplitMaster, TakesAStepBackAsWithFp32Masters) {
  const AdamTensors whole = make_tensors({1003, at::kFloat, at::kFloat, at::kBFloat16}, 9);
  const AdamTensors halves = split(whole);
  AdamStep step = hyperparameters();
  for (step.step = 1; step.step <= 3; ++step.step) {
    adam(whole, step);
    adam(halves, step);
  }
  step.step = 3;
  adam_rollback(whole, step);
  adam_rollback(halves, step);
  expect_same_update(halves, whole, "rolled back");
}

TEST(AdamSplitMaster, NeedsItsUpperHalfInBf16) {
  const auto error_of = [](const AdamTensors& tensors) {
    return testing::error_of<UsageError>([&] { adam(tensors, {}); });
  };
  AdamTensors t = split(make_tensors({8, at::kFloat, at::kFloat, at::kBFloat16}, 11));
  t.low_precision = at::zeros({8}, at::kHalf);
  EXPECT_NE(error_of(t).find("upper half"), std::string::npos) << error_of(t);
  t.low_precision = at::Tensor();
  EXPECT_NE(error_of(t).find("upper half"), std::string::npos) << error_of(t);
}

}  // namespace
}  // namespace deepspeed::kernels
