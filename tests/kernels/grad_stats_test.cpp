#include "deepspeed/kernels/grad_stats.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

TEST(GradStats, SumsSquaresInDoubleForEveryDtypeSizeAndInstructionSet) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int64_t numel : {0, 1, 7, 63, 64, 65, 100003}) {
        const at::Tensor gradient = at::randn({numel}).to(dtype);
        const double expected = gradient.to(at::kDouble).square().sum().item<double>();
        const GradStats stats = grad_stats(gradient);
        // Both sums round each addition to 2^-53.
        EXPECT_NEAR(stats.sum_of_squares, expected, 1e-12 * expected)
            << target << " " << dtype << " " << numel;
        EXPECT_TRUE(stats.finite);
      }
    }
  }
}

TEST(GradStats, DoesNotDependOnTheNumberOfThreads) {
  const SimdTargetGuard guard;
  const at::Tensor gradient = at::randn({1000003});
  at::set_num_threads(1);
  const double one = grad_stats(gradient).sum_of_squares;
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    EXPECT_EQ(grad_stats(gradient).sum_of_squares, one) << threads;
  }
}

TEST(GradStats, FindsOneInfOrNanAnywhere) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t index : {0, 31, 32, 98}) {
      for (const double bad : {double{INFINITY}, -double{INFINITY}, std::nan("")}) {
        const at::Tensor gradient = at::zeros({99}, dtype);
        gradient[index] = bad;
        EXPECT_FALSE(grad_stats(gradient).finite) << dtype << " " << index << " " << bad;
      }
    }
  }
}

TEST(GradStats, TakesASumBeyondFp32ForFinite) {
  const float largest = std::numeric_limits<float>::max();
  const GradStats stats = grad_stats(at::full({1000}, largest));
  EXPECT_TRUE(stats.finite);
  EXPECT_NEAR(stats.sum_of_squares / (static_cast<double>(largest) * largest), 1000, 1e-9);
}

TEST(GradStats, AddsDoublesUpAsTheyAre) {
  for (const int64_t numel : {1, 7, 100, 40001}) {
    const at::Tensor values = at::full({numel}, 1.0 + 1e-12, at::kDouble);
    const GradStats stats = grad_stats(values);
    EXPECT_TRUE(stats.finite);
    EXPECT_NEAR(stats.sum_of_squares / double(numel) - 1.0, 2e-12, 1e-13);
    values[numel / 2] = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(grad_stats(values).finite);
  }
}

TEST(GradStats, RejectsOtherDtypesAndStrides) {
  EXPECT_ERROR(UsageError, grad_stats(at::zeros({3}, at::kLong)), "gradient has dtype Long",
               "expected Float or Half or BFloat16 or Double");
  EXPECT_ERROR(UsageError, grad_stats(at::zeros({3, 4}).t()), "gradient of shape [4, 3] is not dense");
  EXPECT_ERROR(UsageError, grad_stats(at::Tensor()), "gradient is undefined");
  EXPECT_ERROR(UsageError, gradient_scale(at::ones({1}, at::kDouble), 1, 1), "1 elements on cpu",
               "expected 1 on CUDA", "precision::combined_gradient_scale()");
  EXPECT_ERROR(UsageError, use_simd_target("no such set"), "no instruction set 'no such set'",
               simd_targets()[0]);
}

}  // namespace
}  // namespace deepspeed::kernels
