#include "deepspeed/kernels/adam.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/adam_case.h"
#include "tests/kernels/adam_reference.h"
#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

// Runs `steps` steps with fresh gradients and holds every element against the reference. fp32 arithmetic
// rounds about ten times a step, each at most 2^-24 of the number at hand.
void expect_reference(const Case& c, AdamStep step, int steps) {
  AdamTensors t = make_tensors(c, 1);
  ReferenceAdam reference{values(t.master), values(t.exp_avg), values(t.exp_avg_sq)};
  const auto generator = at::detail::createCPUGenerator(2);
  for (int i = 1; i <= steps; ++i) {
    t.gradient = at::randn({c.numel}, generator, at::kFloat).to(c.gradient);
    step.step = i;
    adam(t, step);
    reference.step(values(t.gradient), step);
  }
  constexpr double kUlp = 1.2e-7;  // 2^-23
  const auto p = values(t.master), m = values(t.exp_avg), v = values(t.exp_avg_sq);
  for (size_t i = 0; i < p.size(); ++i) {
    const double lost = steps * (kUlp / 2 * (std::abs(reference.p[i]) + step.lr) + 2e-6 * step.lr);
    ASSERT_NEAR(p[i], reference.p[i], lost) << "master " << i << " of " << c.numel;
    ASSERT_NEAR(m[i], reference.m[i], 1e-6) << "exp_avg " << i << " of " << c.numel;
    ASSERT_NEAR(v[i], reference.v[i], steps * kUlp * reference.v[i])
        << "exp_avg_sq " << i << " of " << c.numel;
  }
  if (t.low_precision.defined()) {
    EXPECT_TRUE(at::equal(t.low_precision, t.master.to(c.copy)));
  }
}

TEST(Adam, AgreesWithTheReferenceOver100Steps) {
  for (const bool adamw : {true, false}) {
    for (const bool bias_correction : {true, false}) {
      AdamStep step = hyperparameters();
      step.adamw_mode = adamw;
      step.bias_correction = bias_correction;
      expect_reference({1000, at::kFloat, at::kFloat, at::ScalarType::Undefined}, step, 100);
    }
  }
}

TEST(Adam, TakesEverySizeAndDtypeOfGradientAndCopy) {
  for (const int64_t numel : {0, 1, 7, 63, 64, 65}) {
    for (const auto gradient : gradients()) {
      for (const auto copy : copies()) {
        expect_reference({numel, gradient, at::kFloat, copy}, hyperparameters(), 10);
      }
    }
  }
}

TEST(Adam, UpdatesALargeOddSize) {
  expect_reference({1000003, at::kBFloat16, at::kFloat, at::kBFloat16}, hyperparameters(), 2);
}

TEST(Adam, WritesTheCopyPastTheCachesAsInto) {
  const int64_t numel = (int64_t{1} << 22) + 3;
  for (const int64_t offset : {0, 1}) {  // the second is not aligned
    AdamTensors t = make_tensors({numel, at::kFloat, at::kFloat, at::ScalarType::Undefined}, 3);
    t.low_precision = at::zeros({numel + offset}, at::kBFloat16).narrow(0, offset, numel);
    adam(t, hyperparameters());
    EXPECT_TRUE(at::equal(t.low_precision, t.master.to(at::kBFloat16))) << offset;
  }
}

TEST(Adam, WritesTheCopyOverTheGradient) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      for (const auto moments : {at::kFloat, at::kBFloat16}) {
        for (const int64_t numel : {7, 65, 100003}) {
          AdamTensors apart = make_tensors({numel, dtype, moments, dtype}, 5);
          AdamTensors over = make_tensors({numel, dtype, moments, at::ScalarType::Undefined}, 5);
          over.low_precision = over.gradient;
          for (AdamTensors* tensors : {&apart, &over}) adam(*tensors, hyperparameters());
          EXPECT_TRUE(at::equal(over.master, apart.master)) << target << dtype << numel;
          EXPECT_TRUE(at::equal(over.low_precision, apart.low_precision)) << target << dtype << numel;
          EXPECT_TRUE(at::equal(over.exp_avg_sq, apart.exp_avg_sq)) << target << dtype << numel;
        }
      }
    }
  }
}

TEST(Adam, DoesNotTouchWhatLiesBesideASlice) {
  for (const int64_t numel : {1, 7, 65}) {
    const auto whole = at::full({numel + 32}, 3.0, at::kFloat);
    AdamTensors t = make_tensors({numel, at::kFloat, at::kFloat, at::ScalarType::Undefined}, 4);
    t.master = whole.narrow(0, 16, numel);
    const auto low = at::full({numel + 32}, 3.0, at::kHalf);
    t.low_precision = low.narrow(0, 16, numel);
    adam(t, hyperparameters());
    for (const auto& beside : {whole.narrow(0, 0, 16), whole.narrow(0, 16 + numel, 16), low.narrow(0, 0, 16),
                               low.narrow(0, 16 + numel, 16)}) {
      EXPECT_TRUE(beside.eq(3.0).all().item<bool>());
    }
  }
}

TEST(Adam, GivesTheSameBitsOnEveryInstructionSet) {
  const SimdTargetGuard guard;
  ASSERT_GE(simd_targets().size(), 2U);
  for (const auto gradient : gradients()) {
    for (const auto copy : copies()) {
      const Case c{4099, gradient, at::kFloat, copy};
      use_simd_target("");
      const AdamTensors best = run(c, 5);
      for (const std::string& target : simd_targets()) {
        use_simd_target(target);
        expect_same_bits(best, run(c, 5), target);
      }
    }
  }
}

TEST(Adam, GivesTheSameBitsWithOneAndTwoThreads) {
  const SimdTargetGuard guard;
  for (const auto moments : {at::kFloat, at::kBFloat16}) {
    const Case c{300007, at::kFloat, moments, at::kBFloat16};
    at::set_num_threads(1);
    const AdamTensors one = run(c, 3);
    at::set_num_threads(2);
    expect_same_bits(one, run(c, 3), "2 threads");
    at::set_num_threads(3);
    expect_same_bits(one, run(c, 3), "3 threads");
  }
}

// Each step begins with what the last one rounded.
TEST(Adam, UpdatesMastersOfSixteenBitsAsCopiesOfThemInFp32) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      for (const auto moments : {at::kFloat, at::kBFloat16}) {
        for (const auto gradient : gradients()) {
          for (const int64_t numel : {0, 1, 7, 64, 65, 4099}) {
            AdamTensors whole = make_tensors({numel, gradient, moments, dtype}, 5);
            whole.low_precision = whole.master.to(dtype);
            const AdamTensors narrow = narrowed(whole, dtype);
            AdamStep step = hyperparameters();
            for (step.step = 1; step.step <= 10; ++step.step) {
              step.rounding_seed = static_cast<uint64_t>(step.step);
              whole.master = whole.low_precision.to(at::kFloat);
              adam(whole, step);
              adam(narrow, step);
            }
            EXPECT_TRUE(at::equal(narrow.master, whole.low_precision)) << target << dtype << numel;
            EXPECT_TRUE(at::equal(narrow.exp_avg, whole.exp_avg)) << target << dtype << numel;
            EXPECT_TRUE(at::equal(narrow.exp_avg_sq, whole.exp_avg_sq)) << target << dtype << numel;
          }
        }
      }
    }
  }
}

TEST(Adam, RoundsTheCopyAsTorchDoes) {
  // Ties, subnormals, overflow and nan, as masters that the update leaves alone (lr 0).
  const std::vector<float> hard = {
      0.0F,   -0.0F,  1.0F,  1.00390625F, 1.01171875F,   65504.0F,      65519.99F,     65520.0F,
      7e4F,   -7e4F,  3e38F, 6e-8F,       2.9802322e-8F, 2.9802326e-8F, 6.1035156e-5F, 6.097e-5F,
      -5e-6F, 1e-40F, NAN,   3.4e38F,     0.1F,          1.0009766F};
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto copy : {at::kHalf, at::kBFloat16}) {
      AdamTensors t = make_tensors({static_cast<int64_t>(hard.size()), at::kFloat, at::kFloat, copy}, 6);
      t.master = at::tensor(hard);
      const at::Tensor expected = t.master.to(copy);
      AdamStep step;
      step.lr = 0;
      adam(t, step);
      EXPECT_TRUE(
          at::allclose(t.low_precision.to(at::kFloat), expected.to(at::kFloat), 0, 0, /*equal_nan=*/true))
          << target << " " << copy << "\n"
          << t.low_precision << expected;
    }
  }
}

TEST(Adam, ReadsEveryHalfAsTorchDoes) {
  const SimdTargetGuard guard;
  const at::Tensor all = at::arange(0, 65536, at::kInt).to(at::kShort);
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      AdamTensors t = make_tensors({65536, at::kFloat, at::kFloat, at::ScalarType::Undefined}, 7);
      t.gradient = all.view(dtype);
      AdamStep step;
      step.lr = 0;
      step.beta1 = 0;  // the first moment is the gradient
      adam(t, step);
      EXPECT_TRUE(at::allclose(t.exp_avg, t.gradient.to(at::kFloat), 0, 0, /*equal_nan=*/true))
          << target << dtype;
    }
  }
}

TEST(Adam, TakesAScaleThatComesAsATensor) {
  for (const auto moments : {at::kFloat, at::kBFloat16}) {
    for (const bool adamw : {false, true}) {
      const Case c{1003, at::kBFloat16, moments, at::kBFloat16};
      const AdamTensors by_number = make_tensors(c, 8);
      AdamTensors by_tensor = make_tensors(c, 8);
      AdamStep step = hyperparameters();
      step.adamw_mode = adamw;
      by_tensor.gradient_scale = at::full({}, 1 / 3.0, at::kDouble);
      adam(by_tensor, step);
      step.gradient_scale = 1 / 3.0;
      adam(by_number, step);
      expect_same_bits(by_tensor, by_number, adamw ? "AdamW" : "Adam");
    }
  }
}

TEST(Adam, WritesNothingByAScaleThatIsNoNumber) {
  for (const auto moments : {at::kFloat, at::kBFloat16}) {
    const Case c{1003, at::kBFloat16, moments, at::kBFloat16};
    const AdamTensors before = make_tensors(c, 8);
    AdamTensors t = make_tensors(c, 8);
    t.gradient_scale = at::full({}, NAN, at::kDouble);
    adam(t, hyperparameters());
    expect_same_bits(t, before, "after the step");
    if (moments == at::kFloat) adam_rollback(t, hyperparameters());
    expect_same_bits(t, before, "after the way back");
  }
}

void expect_usage_error(const AdamTensors& tensors, const AdamStep& step, const std::string& part) {
  EXPECT_ERROR(UsageError, adam(tensors, step), part);
}

TEST(Adam, NamesTheArgumentThatDoesNotFit) {
  const Case c{8, at::kFloat, at::kFloat, at::kHalf};
  AdamTensors t = make_tensors(c, 11);
  t.gradient = at::zeros({7});
  expect_usage_error(t, {}, "gradient has 7 elements");
  t = make_tensors(c, 11);
  t.exp_avg_sq = at::zeros({8}, at::kBFloat16);
  expect_usage_error(t, {}, "exp_avg_sq has dtype");
  t = make_tensors(c, 11);
  t.low_precision = at::zeros({8}, at::kFloat);
  expect_usage_error(t, {}, "low_precision has dtype");
  t = make_tensors(c, 11);
  t.master = at::zeros({8, 2}).select(1, 0);
  expect_usage_error(t, {}, "contiguous");
  t.master = at::zeros({8}, at::kHalf);
  expect_usage_error(t, {}, "low_precision with a master of dtype Half");
  t.master = at::Tensor();
  expect_usage_error(t, {}, "master is undefined");
  t = make_tensors(c, 11);
  t.gradient_scale = at::ones({}, at::kFloat);
  expect_usage_error(t, {}, "gradient_scale has dtype Float");
  t.gradient_scale = at::ones({2}, at::kDouble);
  expect_usage_error(t, {}, "gradient_scale has 2 elements");
  AdamStep step;
  step.step = 0;
  expect_usage_error(make_tensors(c, 11), step, "step is 0");
}

}  // namespace
}  // namespace deepspeed::kernels
