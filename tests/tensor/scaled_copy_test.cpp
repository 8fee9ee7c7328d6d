#include "deepspeed/tensor/scaled_copy.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

TEST(CopyScaled, HasTheBitsOfAProductAndLeavesTheValues) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
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

TEST(CopyScaled, TakesIntegersByOneAlone) {
  const at::Tensor result = at::full({3}, 0, at::kLong);
  copy_scaled(result, at::full({3}, 7, at::kLong), 1.0);
  EXPECT_EQ(result.sum().item<int64_t>(), 21);
}

}  // namespace
}  // namespace deepspeed
