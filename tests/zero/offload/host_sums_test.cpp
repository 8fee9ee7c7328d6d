#include "deepspeed/zero/offload/host_sums.h"

#include <vector>

#include <ATen/ops/tensor.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::floats_of;

HostSums sums_on_cpu() { return {at::kCPU, /*pin_memory=*/false}; }

TEST(HostSums, BeginAtZero) {
  const at::Tensor kept = sums_on_cpu().make(1000, at::kBFloat16);
  EXPECT_EQ(kept.scalar_type(), at::kBFloat16);
  EXPECT_EQ(kept.numel(), 1000);
  EXPECT_THAT(floats_of(kept), Each(0.0F));
}

TEST(HostSums, PutOrAddAPieceAtItsPlace) {
  HostSums sums = sums_on_cpu();
  const at::Tensor kept = sums.make(6, at::kFloat);
  sums.take(0, kept, {1, 4}, at::tensor({1.0F, 2.0F, 3.0F}), /*adds=*/false);
  sums.take(0, kept, {3, 6}, at::tensor({10.0F, 20.0F, 30.0F}), /*adds=*/true);
  sums.wait_for_all();
  EXPECT_THAT(floats_of(kept), ElementsAre(0, 1, 2, 13, 20, 30));
  sums.take(0, kept, {3, 4}, at::tensor({5.0F}), /*adds=*/false);
  sums.wait_for_all();
  EXPECT_THAT(floats_of(kept), ElementsAre(0, 1, 2, 5, 20, 30));
}

TEST(HostSums, AddTwoPiecesOfOneElementOneAfterTheOther) {
  HostSums sums = sums_on_cpu();
  const at::Tensor kept = sums.make(2, at::kFloat);
  for (int i = 1; i <= 5; ++i) sums.take(0, kept, {0, 2}, at::tensor({1.0F * i, 100.0F * i}), /*adds=*/i > 1);
  sums.wait_for(0, {0, 1});
  EXPECT_THAT(floats_of(kept), ElementsAre(15, 1500));
}

TEST(HostSums, WaitForWhatMeetsThePartAlone) {
  HostSums sums = sums_on_cpu();
  const at::Tensor kept = sums.make(4, at::kFloat), other = sums.make(4, at::kFloat);
  sums.take(0, kept, {0, 2}, at::tensor({1.0F, 2.0F}), /*adds=*/true);
  sums.take(0, kept, {2, 4}, at::tensor({3.0F, 4.0F}), /*adds=*/true);
  sums.take(1, other, {0, 2}, at::tensor({5.0F, 6.0F}), /*adds=*/true);
  EXPECT_THAT(floats_of(kept), Each(0.0F));  // summands are added by the wait
  sums.wait_for(0, {1, 2});
  EXPECT_THAT(floats_of(kept), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(floats_of(other), Each(0.0F));
  sums.wait_for(1, {0, 4});
  EXPECT_THAT(floats_of(other), ElementsAre(5, 6, 0, 0));
  sums.wait_for_all();
  EXPECT_THAT(floats_of(kept), ElementsAre(1, 2, 3, 4));
}

TEST(HostSums, HandTheWaitOver) {
  HostSums sums = sums_on_cpu();
  const at::Tensor kept = sums.make(3, at::kFloat);
  sums.take(0, kept, {0, 2}, at::tensor({1.0F, 2.0F}), /*adds=*/true);
  sums.take(0, kept, {2, 3}, at::tensor({3.0F}), /*adds=*/true);
  const auto wait = sums.hand_over(0, {0, 1});
  sums.wait_for_all();  // does not wait for the part that was handed over
  EXPECT_THAT(floats_of(kept), ElementsAre(0, 0, 3));
  wait();
  EXPECT_THAT(floats_of(kept), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace deepspeed::zero
