#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

double sum_on_device(TwinArray& values) {
  const emulation::DeviceMemory sums(kSumOfSquaresBlocks * sizeof(double));
  EXPECT_EQ(launch_sum_of_squares(values.device.data(), element(values.type), values.numel,
                                  static_cast<double*>(sums.data()), nullptr),
            cudaSuccess);
  double sum = 0;
  for (int i = 0; i < kSumOfSquaresBlocks; ++i) sum += static_cast<double*>(sums.data())[i];
  return sum;
}

using SumOfSquaresKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, SumOfSquaresKernel, testing::Values(0, 7));

// Each launch has 262144 threads: sizes are few.
TEST_P(SumOfSquaresKernel, IsThatOfTheCpu) {
  for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16, Type::kDouble}) {
    for (const auto& [numel, offset] : {std::pair<int64_t, int64_t>{4099, 0}, {100003, 1}}) {
      TwinArray values(type, numel, offset);
      Random random(numel);
      values.fill([&](int64_t) { return random.normal(); });
      const double expected = sum_of_squares_simd(values.on_cpu(), element(type), 0, numel);
      EXPECT_NEAR(sum_on_device(values), expected, 1e-12 * expected) << numel << " from " << offset;
    }
  }
}

TEST_P(SumOfSquaresKernel, IsZeroForNoElements) {
  TwinArray none(Type::kFloat, 0);
  EXPECT_EQ(sum_on_device(none), 0);
}

TEST_P(SumOfSquaresKernel, HandsOnInfinitiesAndNans) {
  TwinArray values(Type::kBFloat16, 3);
  values.fill([](int64_t i) { return i == 2 ? INFINITY : 1.0; });
  EXPECT_EQ(sum_on_device(values), INFINITY);
  values.fill([](int64_t i) { return i == 2 ? NAN : 1.0; });
  EXPECT_TRUE(std::isnan(sum_on_device(values)));
}

TEST_P(SumOfSquaresKernel, TakesSeveralElementsAThreadIfTheGridIsFull) {
  if (is_slow_build()) GTEST_SKIP() << "the build for contracted sums has room and time for it";
  TwinArray values(Type::kHalf, 4096 * 256 + 5);
  values.fill([](int64_t i) { return double(i % 7); });
  const double expected = sum_of_squares_simd(values.on_cpu(), ElementType::kFloat16, 0, values.numel);
  EXPECT_EQ(sum_on_device(values), expected);  // exact, since all are whole numbers
}

double scale_on_device(double sum_of_squares, double loss_scale, double clip, bool skips = false) {
  const emulation::DeviceMemory sum(sizeof(double)), scale(sizeof(double));
  *static_cast<double*>(sum.data()) = sum_of_squares;
  EXPECT_EQ(launch_gradient_scale(static_cast<const double*>(sum.data()), loss_scale, clip, skips,
                                  static_cast<double*>(scale.data()), nullptr),
            cudaSuccess);
  return *static_cast<double*>(scale.data());
}

using GradientScaleKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, GradientScaleKernel, testing::Values(0));

TEST_P(GradientScaleKernel, HasTheBitsOfTheFormula) {
  for (const double sum : {0.0, 1e-300, 0.3, 7.0, 12345.678, 1e300}) {
    for (const double loss_scale : {1.0, 3.0, 65536.0}) {
      for (const double clip : {1e-3, 0.1, 1.0, 7.0}) {
        const double excess = (std::sqrt(sum) / loss_scale + 1e-6) / clip;
        for (const bool skips : {false, true}) {
          EXPECT_EQ(scale_on_device(sum, loss_scale, clip, skips), 1 / (loss_scale * std::fmax(1.0, excess)))
              << sum << " " << loss_scale << " " << clip;
        }
      }
      EXPECT_EQ(scale_on_device(sum, loss_scale, 0), 1 / loss_scale) << "a clip of 0 is no clipping";
    }
  }
}

TEST_P(GradientScaleKernel, IsNotANumberIfTheStepIsSkipped) {
  for (const double sum : {double{INFINITY}, double{NAN}}) {
    for (const double clip : {0.0, 0.1}) EXPECT_TRUE(std::isnan(scale_on_device(sum, 8.0, clip, true)));
  }
}

TEST_P(GradientScaleKernel, ClipsNothingIfTheSumIsNotFinite) {
  for (const double sum : {double{INFINITY}, double{NAN}}) EXPECT_EQ(scale_on_device(sum, 8.0, 0.1), 0.125);
}

}  // namespace
}  // namespace deepspeed::kernels
