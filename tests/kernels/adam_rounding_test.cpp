// Adam with bf16 moments: stochastic rounding, fused operations.
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/adam.h"

#include "tests/kernels/adam_case.h"
#include "tests/kernels/adam_reference.h"
#include "tests/kernels/simd_target_guard.h"

namespace deepspeed::kernels {
namespace {

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

TEST(AdamRounding, GivesTheSameBf16MomentsOnInstructionSetsThatFuseEqually) {
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

TEST(AdamRounding, Bf16MomentsFollowTheReferenceWithinTheirRounding) {
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

TEST(AdamRounding, RoundsMomentsWithoutBias) {
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

TEST(AdamRounding, RoundsNeighboursAndStepsIndependently) {
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

TEST(AdamRounding, RoundingDependsOnTheSeed) {
  const Case c{1000, at::kFloat, at::kBFloat16, at::ScalarType::Undefined};
  AdamTensors a = make_tensors(c, 9), b = make_tensors(c, 9);
  AdamStep step;
  adam(a, step);
  step.rounding_seed = 1;
  adam(b, step);
  EXPECT_FALSE(at::equal(a.exp_avg, b.exp_avg));
  EXPECT_TRUE(at::equal(a.master, b.master)) << "the first update uses the moments before they are rounded";
}

TEST(AdamRounding, IsTheSameInPiecesAsInTheWhole) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto copy : copies()) {
      const Case c{40'000, at::kFloat, at::kBFloat16, copy};
      const AdamTensors whole = make_tensors(c, 9), cut = make_tensors(c, 9);
      AdamStep step = hyperparameters();
      step.first_index = (int64_t{1} << 32) - 20'001;  // the upper half of the index changes within
      const int64_t first = step.first_index;
      adam(whole, step);
      int64_t begin = 0;
      for (const int64_t end : {1, 8, 21, 20'001, 20'003, 33'000, 40'000}) {
        const auto piece_of = [&](const at::Tensor& tensor) {
          return tensor.defined() ? tensor.narrow(0, begin, end - begin) : tensor;
        };
        step.first_index = first + begin;
        adam({piece_of(cut.master), piece_of(cut.gradient), piece_of(cut.exp_avg), piece_of(cut.exp_avg_sq),
              piece_of(cut.low_precision)},
             step);
        begin = end;
      }
      expect_same_bits(whole, cut, target);
    }
  }
}

TEST(AdamRounding, KeepsNanInBf16Moments) {
  AdamTensors t = make_tensors({9, at::kFloat, at::kBFloat16, at::ScalarType::Undefined}, 10);
  t.gradient =
      at::full({9}, 0x7fffffff, at::kInt).view(at::kFloat);  // a nan with every bit of the mantissa set
  adam(t, AdamStep{});
  EXPECT_TRUE(t.exp_avg.isnan().all().item<bool>());
  EXPECT_TRUE(t.exp_avg_sq.isnan().all().item<bool>());
}

}  // namespace
}  // namespace deepspeed::kernels
