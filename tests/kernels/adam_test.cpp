#include "deepspeed/kernels/adam.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/adam_reference.h"
#include "tests/kernels/simd_target_guard.h"

namespace deepspeed::kernels {
namespace {

struct Case {
  int64_t numel;
  at::ScalarType gradient;
  at::ScalarType moments;
  at::ScalarType copy;  // Undefined: none
};

std::vector<at::ScalarType> copies() { return {at::ScalarType::Undefined, at::kHalf, at::kBFloat16}; }
std::vector<at::ScalarType> gradients() { return {at::kFloat, at::kHalf, at::kBFloat16}; }

AdamTensors make_tensors(const Case& c, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  AdamTensors t;
  t.master = at::randn({c.numel}, generator, at::kFloat);
  t.gradient = at::randn({c.numel}, generator, at::kFloat).to(c.gradient);
  t.exp_avg = at::zeros({c.numel}, c.moments);
  t.exp_avg_sq = at::zeros({c.numel}, c.moments);
  if (c.copy != at::ScalarType::Undefined) t.low_precision = at::zeros({c.numel}, c.copy);
  return t;
}

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

AdamStep hyperparameters() {
  AdamStep step;
  step.lr = 1e-2;
  step.weight_decay = 0.1;
  step.gradient_scale = 0.25;
  return step;
}

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

AdamTensors run(const Case& c, int steps) {
  AdamTensors t = make_tensors(c, 5);
  AdamStep step = hyperparameters();
  for (int i = 1; i <= steps; ++i) {
    step.step = i;
    step.rounding_seed = static_cast<uint64_t>(i);
    adam(t, step);
  }
  return t;
}

void expect_same_bits(const AdamTensors& a, const AdamTensors& b, const std::string& what) {
  EXPECT_TRUE(at::equal(a.master, b.master)) << what;
  EXPECT_TRUE(at::equal(a.exp_avg, b.exp_avg)) << what;
  EXPECT_TRUE(at::equal(a.exp_avg_sq, b.exp_avg_sq)) << what;
  if (a.low_precision.defined()) {
    EXPECT_TRUE(at::equal(a.low_precision, b.low_precision)) << what;
  }
}

TEST(Adam, EveryInstructionSetGivesTheSameBits) {
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

// Fused multiply-adds differ by an ulp of fp32, which now and then rounds a moment to its neighbour in bf16
// (at most 2^-7 of it); the update is lr times a quotient of two moments.
void expect_neighbours(const AdamTensors& a, const AdamTensors& b, double lr, int steps,
                       const std::string& what) {
  const auto difference = [](const at::Tensor& x, const at::Tensor& y) {
    return (x.to(at::kDouble) - y.to(at::kDouble)).abs().max().item<double>();
  };
  const auto largest = [](const at::Tensor& x) { return x.to(at::kDouble).abs().max().item<double>(); };
  EXPECT_LE(difference(a.master, b.master), steps * lr / 64) << what;
  EXPECT_LE(difference(a.exp_avg, b.exp_avg), largest(a.exp_avg) / 64) << what;
  EXPECT_LE(difference(a.exp_avg_sq, b.exp_avg_sq), largest(a.exp_avg_sq) / 64) << what;
}

TEST(Adam, InstructionSetsThatFuseAlikeGiveTheSameBitsOfBf16Moments) {
  const SimdTargetGuard guard;
  const auto fuses = [](const std::string& target) { return target.rfind("AVX", 0) == 0; };
  for (const auto gradient : gradients()) {
    for (const auto copy : copies()) {
      const Case c{4099, gradient, at::kBFloat16, copy};
      AdamTensors first[2];  // of those that fuse and of the others
      for (const std::string& target : simd_targets()) {
        use_simd_target(target);
        const AdamTensors result = run(c, 5);
        AdamTensors& like = first[fuses(target) ? 1 : 0];
        if (like.master.defined()) {
          expect_same_bits(like, result, target);
        } else {
          like = result;
        }
      }
      if (first[0].master.defined() && first[1].master.defined()) {
        expect_neighbours(first[0], first[1], hyperparameters().lr, 5, "with and without fusing");
      }
    }
  }
}

TEST(Adam, Bf16MomentsFollowTheReferenceWithinTheirRounding) {
  for (const bool adamw : {true, false}) {
    for (const double lr : {1e-2, 0.0}) {
      const Case c{4099, at::kFloat, at::kBFloat16, at::ScalarType::Undefined};
      AdamTensors t = make_tensors(c, 12);
      ReferenceAdam reference{values(t.master), values(t.exp_avg), values(t.exp_avg_sq)};
      AdamStep step = hyperparameters();
      step.adamw_mode = adamw;
      step.lr = lr;
      for (int i = 1; i <= 3; ++i) {
        step.step = i;
        step.rounding_seed = static_cast<uint64_t>(i);
        adam(t, step);
        reference.step(values(t.gradient), step);
      }
      const auto p = values(t.master);
      for (size_t i = 0; i < p.size(); ++i) {
        // The gradient stays, so the quotient is near 1; each moment is off by 2^-8 a step.
        ASSERT_NEAR(p[i], reference.p[i], 3 * lr / 32 + 3e-7 * std::abs(p[i])) << i;
      }
    }
  }
}

TEST(Adam, OneAndTwoThreadsGiveTheSameBits) {
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

TEST(Adam, RoundsMomentsWithoutBias) {
  // A gradient of 0 shrinks v by 0.1 % a step: a quarter of half an ulp of bf16, which plain rounding would
  // lose.
  const int64_t numel = 1 << 16;
  AdamTensors t = make_tensors({numel, at::kFloat, at::kBFloat16, at::ScalarType::Undefined}, 8);
  t.gradient.zero_();
  t.exp_avg.fill_(1.0);
  t.exp_avg_sq.fill_(1.0);
  AdamStep step;
  step.beta1 = 0.999;
  const int steps = 500;
  for (int i = 1; i <= steps; ++i) {
    step.step = i;
    step.rounding_seed = static_cast<uint64_t>(i);
    adam(t, step);
  }
  const double expected = std::pow(0.999, steps);
  // One ulp is 2^-8 and each step adds at most a quarter of its square as variance: 500 steps over 65536
  // elements leave the mean with a deviation below 2e-4.
  EXPECT_NEAR(t.exp_avg_sq.to(at::kDouble).mean().item<double>(), expected, 1e-3);
  EXPECT_NEAR(t.exp_avg.to(at::kDouble).mean().item<double>(), expected, 1e-3);
  const at::Tensor a = t.exp_avg.to(at::kDouble) - t.exp_avg.to(at::kDouble).mean();
  const at::Tensor b = t.exp_avg_sq.to(at::kDouble) - t.exp_avg_sq.to(at::kDouble).mean();
  const double correlation = (a * b).mean().item<double>() /
                             std::sqrt(a.square().mean().item<double>() * b.square().mean().item<double>());
  EXPECT_LT(std::abs(correlation), 0.02) << "the two moments must be rounded independently";
}

// One step of v = 1 with a decay of a quarter of an ulp of bf16: which elements went down, as 0 and 1.
at::Tensor rounded_down(int64_t numel, uint64_t seed) {
  AdamTensors t = make_tensors({numel, at::kFloat, at::kBFloat16, at::ScalarType::Undefined}, 8);
  t.gradient.zero_();
  t.exp_avg_sq.fill_(1.0);
  AdamStep step;
  step.rounding_seed = seed;
  step.beta2 = 1 - 1.0 / 1024;  // an ulp below 1 is 2^-8
  adam(t, step);
  return t.exp_avg_sq.to(at::kDouble).lt(1.0).to(at::kDouble);
}

TEST(Adam, RoundsNeighboursAndStepsIndependently) {
  const int64_t numel = 1 << 16;
  const at::Tensor one = rounded_down(numel, 1) - 0.25;
  EXPECT_NEAR(one.mean().item<double>(), 0, 0.01);  // six deviations of the mean of 65536 coins
  const double variance = 0.25 * 0.75;
  const auto correlation = [&](const at::Tensor& a, const at::Tensor& b) {
    return (a * b).mean().item<double>() / variance;
  };
  for (const int64_t lag : {1, 2, 3, 4, 7, 8, 16, 64, 1024}) {
    EXPECT_LT(std::abs(correlation(one.narrow(0, 0, numel - lag), one.narrow(0, lag, numel - lag))), 0.03)
        << lag;
  }
  for (uint64_t seed = 2; seed < 6; ++seed) {
    EXPECT_LT(std::abs(correlation(one, rounded_down(numel, seed) - 0.25)), 0.03) << seed;
  }
}

TEST(Adam, RoundingDependsOnTheSeed) {
  const Case c{1000, at::kFloat, at::kBFloat16, at::ScalarType::Undefined};
  AdamTensors a = make_tensors(c, 9), b = make_tensors(c, 9);
  AdamStep step;
  adam(a, step);
  step.rounding_seed = 1;
  adam(b, step);
  EXPECT_FALSE(at::equal(a.exp_avg, b.exp_avg));
  EXPECT_TRUE(at::equal(a.master, b.master)) << "the first update uses the moments before they are rounded";
}

TEST(Adam, KeepsNanInBf16Moments) {
  AdamTensors t = make_tensors({9, at::kFloat, at::kBFloat16, at::ScalarType::Undefined}, 10);
  t.gradient =
      at::full({9}, 0x7fffffff, at::kInt).view(at::kFloat);  // a nan with every bit of the mantissa set
  adam(t, AdamStep{});
  EXPECT_TRUE(t.exp_avg.isnan().all().item<bool>());
  EXPECT_TRUE(t.exp_avg_sq.isnan().all().item<bool>());
}

void expect_usage_error(const AdamTensors& tensors, const AdamStep& step, const std::string& part) {
  try {
    adam(tensors, step);
    FAIL() << "expected an error naming " << part;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
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
  t.master = at::Tensor();
  expect_usage_error(t, {}, "master is undefined");
  AdamStep step;
  step.step = 0;
  expect_usage_error(make_tensors(c, 11), step, "step is 0");
}

}  // namespace
}  // namespace deepspeed::kernels
