#include "deepspeed/kernels/sign_compression.h"

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/kernels/simd_target_guard.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

at::Tensor signs_of(const at::Tensor& x) { return at::where(x >= 0, at::ones_like(x), -at::ones_like(x)); }

at::Tensor root_mean_squares(const at::Tensor& x) {
  return x.view({-1, kSignBlock}).to(at::kDouble).square().mean(1, true).sqrt().to(at::kFloat);
}

TEST(SignCompression, IsSignTimesRootMeanSquareWithFeedbackOnEveryInstructionSet) {
  const SimdTargetGuard guard;
  for (const std::string& target : simd_targets()) {
    use_simd_target(target);
    for (const int64_t numel : {kSignBlock, 5 * kSignBlock}) {
      const at::Tensor values = at::randn({numel}), errors = at::randn({numel}) * 0.1;
      const at::Tensor x = values + errors;
      const at::Tensor expected = (signs_of(x).view({-1, kSignBlock}) * root_mean_squares(x)).view({-1});
      const at::Tensor packed = at::full({sign_bytes(numel)}, 0xa5, at::kByte);
      compress_signs(values, errors, packed);
      at::Tensor back = at::ones({numel});
      add_signs(packed, back);
      EXPECT_TRUE(values.equal(x)) << target;
      EXPECT_TRUE(at::allclose(back - 1, expected, 1e-5, 1e-6)) << target;
      EXPECT_TRUE(at::allclose(errors, x - expected, 1e-5, 1e-5)) << target;
    }
  }
}

TEST(SignCompression, HasABitAnElementAndAScaleABlock) {
  EXPECT_EQ(sign_bytes(2 * kSignBlock), 2 * (kSignBlock / 8 + 4));
  at::Tensor values = at::ones({kSignBlock});
  values[1] = -1;
  values[9] = -0.0F;  // counts as positive
  const at::Tensor errors = at::zeros({kSignBlock}), packed = at::empty({sign_bytes(kSignBlock)}, at::kByte);
  values[10] = -1;
  compress_signs(values, errors, packed);
  EXPECT_EQ(packed[0].item<int>(), 0xfd);
  EXPECT_EQ(packed[1].item<int>(), 0xfb);
  EXPECT_NEAR(packed.narrow(0, kSignBlock / 8, 4).view(at::kFloat).item<float>(), 1.0, 1e-3);
}

TEST(SignCompression, LosesNothingOverManySums) {
  constexpr int64_t kNumel = 2 * kSignBlock;
  const at::Tensor errors = at::zeros({kNumel}), packed = at::empty({sign_bytes(kNumel)}, at::kByte);
  at::Tensor sent = at::zeros({kNumel}), total = at::zeros({kNumel});
  for (int step = 0; step < 50; ++step) {
    const at::Tensor values = at::randn({kNumel});
    total += values;
    compress_signs(values, errors, packed);
    add_signs(packed, sent);
  }
  EXPECT_TRUE(at::allclose(sent + errors, total, 1e-3, 1e-3));
}

TEST(SignCompression, RefusesWhatItCannotCompress) {
  const at::Tensor packed = at::empty({sign_bytes(kSignBlock)}, at::kByte);
  const auto refuses = [&](const at::Tensor& values, const char* text) {
    EXPECT_THAT(testing::error_of<UsageError>([&] { add_signs(packed, values); }),
                ::testing::HasSubstr(text));
  };
  refuses(at::zeros({100}), "expected a multiple of 2048");
  refuses(at::zeros({2 * kSignBlock}), "packed");
  refuses(at::zeros({kSignBlock}, at::kHalf), "values");
}

}  // namespace
}  // namespace deepspeed::kernels
