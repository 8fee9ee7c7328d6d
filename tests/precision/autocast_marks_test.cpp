// The marks of autocast belong to their tensors and go with them.
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include "deepspeed/precision/autocast.h"

namespace deepspeed::precision {
namespace {

TEST(AutocastMarks, CanBeTakenAway) {
  const at::Tensor weight = at::zeros({2});
  set_autocast_dtype(weight, at::kBFloat16);
  EXPECT_EQ(find_autocast_dtype(weight), at::kBFloat16);
  set_autocast_dtype(weight, at::kHalf);
  EXPECT_EQ(find_autocast_dtype(weight), at::kHalf);
  clear_autocast_dtype(weight);
  EXPECT_FALSE(has_autocast_dtype(weight));
}

TEST(AutocastMarks, AreDroppedWithTheirTensors) {
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> gone;
  for (int i = 0; i < 100; ++i) {
    const at::Tensor weight = at::zeros({1});
    gone.emplace_back(weight.getIntrusivePtr());
    set_autocast_dtype(weight, at::kHalf);
  }
  std::vector<at::Tensor> alive;
  for (int i = 0; i < 300; ++i) {
    alive.push_back(at::zeros({1}));
    set_autocast_dtype(alive.back(), at::kHalf);
  }
  for (const auto& weak : gone) EXPECT_EQ(weak.weak_use_count(), 1U) << "the mark still holds on to it";
  for (const at::Tensor& weight : alive) EXPECT_TRUE(has_autocast_dtype(weight));
}

}  // namespace
}  // namespace deepspeed::precision
