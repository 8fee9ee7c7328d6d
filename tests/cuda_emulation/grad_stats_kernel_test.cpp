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

TEST_P(SumOfSquaresKernel, OfNothingIsZero) {
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

TEST_P(SumOfSquaresKernel, TakesSeveralElementsAThreadWhereTheGridIsFull) {
  if (is_slow_build()) GTEST_SKIP() << "the build for contracted sums has room and time for it";
  TwinArray values(Type::kHalf, 4096 * 256 + 5);
  values.fill([](int64_t i) { return double(i % 7); });
  const double expected = sum_of_squares_simd(values.on_cpu(), ElementType::kFloat16, 0, values.numel);
  EXPECT_EQ(sum_on_device(values), expected);  // exact, since all are whole numbers
}

}  // namespace
}  // namespace deepspeed::kernels
