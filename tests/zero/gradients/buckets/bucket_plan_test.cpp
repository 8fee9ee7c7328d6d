#include "deepspeed/zero/gradients/buckets/bucket_plan.h"

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"

#include "tests/support/error_of.h"
#include "tests/zero/params/stored_params.h"

namespace deepspeed::zero {
namespace {

/// Lays out three parameters of 4 elements, on one rank of a fake world.
class BucketPlanTest : public ::testing::Test {
 protected:
  BucketPlanTest() { options.keys.reduce_bucket_size = 8; }

  BucketPlan make() { return {store, comm::make_fake_world(1).group(), options, {{0, 12}}}; }
  const at::TensorImpl* param(size_t index) const { return params[index].tensor.unsafeGetTensorImpl(); }

  std::vector<NamedTensor> params = testing::marked_params({{2, 2}, {4}, {2, 2}});
  ParamStore store{std::vector<std::vector<NamedTensor>>{params}, 1, ParamStore::Options{.stage = 1}};
  ReducerOptions options;
};

TEST_F(BucketPlanTest, LaysTheLastParametersFirstAndBeginsAnewWithOtherSizes) {
  BucketPlan plan = make();
  ASSERT_EQ(plan.buckets().size(), 2u);
  EXPECT_EQ(plan.bucket(0).params, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(plan.space().numel(plan.bucket(0)), 8);
  EXPECT_EQ(plan.order().take_any(), 0u);
  plan.lay_out(4);
  EXPECT_EQ(plan.buckets().size(), 3u);
  EXPECT_EQ(plan.order().take_any(), 0u);
  EXPECT_ERROR(UsageError, plan.lay_out(0), "bucket size 0");
}

TEST_F(BucketPlanTest, SendsEachParameterAloneWhereTheConfigSaysSo) {
  options.keys.contiguous_gradients = false;
  EXPECT_EQ(make().buckets().size(), 3u);
}

TEST_F(BucketPlanTest, KeepsParametersApartThatTravelInDifferentWays) {
  options.keys.reduce_bucket_size = 1000;
  options.is_quantized = true;
  options.param_communication_dtypes[param(2)] = at::kHalf;
  options.by_rows.insert(param(0));
  const BucketPlan plan = make();
  ASSERT_EQ(plan.buckets().size(), 3u);
  EXPECT_EQ(plan.bucket(0).kind, (BucketKind{.dtype = at::kHalf, .is_quantized = true}));
  EXPECT_EQ(plan.bucket(1).kind, BucketKind{});  // a bias stays exact
  EXPECT_EQ(plan.bucket(2).kind, BucketKind{.by_rows = 1});
}

TEST_F(BucketPlanTest, HoldsTheBucketsOfAUnitUntilItsGatesOpen) {
  options.units = {{param(1), 1}, {param(2), 1}, {param(0), 2}};
  BucketPlan plan = make();
  for (size_t index = 0; index < 3; ++index) plan.order().mark_arrived(0, index);
  EXPECT_FALSE(plan.order().take_complete());
  plan.open_gates(2);
  EXPECT_FALSE(plan.order().take_complete());
  plan.open_gates(1);
  EXPECT_EQ(plan.order().take_complete(), 0u);
  EXPECT_EQ(plan.order().take_complete(), 1u);
}

}  // namespace
}  // namespace deepspeed::zero
