#include "deepspeed/tensor/scaling.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

TEST(Scaling, HasTheBitsOfAProductInTheTypeOfSums) {
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor values = at::linspace(-3, 5, 1001).to(dtype);
    for (const double factor : {1.0, 1.0 / 3, -2.5}) {
      const at::Tensor wide = dtype == at::kDouble ? values : values.to(at::kFloat);
      const at::Tensor scaled = values.clone();
      scale(scaled, factor);
      EXPECT_TRUE(at::equal(scaled, wide.mul(factor).to(dtype))) << dtype << " " << factor;
    }
  }
}

TEST(Scaling, WritesACopyAndNothingBesideIt) {
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor values = at::linspace(-3, 5, 1001).to(dtype);
    const at::Tensor before = values.clone();
    for (const double factor : {1.0, 1.0 / 3, -2.5}) {
      const at::Tensor room = at::full({1003}, 9.0, values.options());
      copy_scaled(room.narrow(0, 1, 1001), values, factor);
      EXPECT_TRUE(at::equal(room.narrow(0, 1, 1001), values.mul(factor))) << dtype << " " << factor;
      EXPECT_EQ(room[0].item<double>(), 9.0);
      EXPECT_EQ(room[1002].item<double>(), 9.0);
    }
    EXPECT_TRUE(at::equal(values, before));
  }
}

TEST(Scaling, TakesIntegersOnlyByOne) {
  const at::Tensor result = at::full({3}, 0, at::kLong);
  copy_scaled(result, at::full({3}, 7, at::kLong), 1.0);
  scale(result, 1.0);
  EXPECT_EQ(result.sum().item<int64_t>(), 21);
}

}  // namespace
}  // namespace deepspeed
