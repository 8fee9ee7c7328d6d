// Sub-groups of DeepSpeedCPUAdam: stepped one by one, and taken back.
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using testing::error_of;
using Params = std::vector<at::Tensor>;

DeepSpeedCPUAdamOptions options() { return DeepSpeedCPUAdamOptions().lr(0.01).weight_decay(0.1); }

// Gives the optimizer the sub-group's tensor alone, as a partition that comes and goes.
void step_subgroup(DeepSpeedCPUAdam& optimizer, int64_t id, at::Tensor tensor, const at::Tensor& gradient) {
  tensor.mutable_grad() = gradient.to(tensor.scalar_type());
  optimizer.param_groups()[0].params() = {tensor};
  optimizer.step_subgroup(id);
}

TEST(CpuAdamSubgroups, EachStepWithAStateOfItsOwn) {
  const auto values = optim::test_gradients(8, {5, 7});
  const at::Tensor first = values[0].clone(), second = values[1].clone();
  const at::Tensor alone_first = first.clone(), alone_second = second.clone();
  DeepSpeedCPUAdam together(Params{first}, options());
  DeepSpeedCPUAdam one(Params{alone_first}, options()), two(Params{alone_second}, options());
  for (size_t i = 2; i < 8; ++i) {
    step_subgroup(together, 10, first, values[i]);
    alone_first.mutable_grad() = values[i];
    one.step();
    if (i % 2 == 0) continue;  // the second goes half as far
    step_subgroup(together, 20, second, values[i]);
    alone_second.mutable_grad() = values[i];
    two.step();
  }
  EXPECT_TRUE(at::equal(first, alone_first));
  EXPECT_TRUE(at::equal(second, alone_second));
  EXPECT_EQ(together.state_of_subgroup(10).step, 6);
  EXPECT_EQ(together.state_of_subgroup(20).step, 3);
  EXPECT_TRUE(together.state_of_subgroup(30).tensors.empty());
}

void expect_same_state(const optim::SliceState& a, const optim::SliceState& b) {
  EXPECT_EQ(a.step, b.step);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i)
    EXPECT_TRUE(at::equal(a.tensors[i].second, b.tensors[i].second)) << i;
}

TEST(CpuAdamSubgroups, TakeAStepBackBitForBit) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool fp32_states : {true, false}) {
      const auto values = optim::test_gradients(6, {5, 7});
      const at::Tensor weights = values[0].to(dtype), straight = weights.clone();
      const auto own = options().fp32_optimizer_states(fp32_states);
      DeepSpeedCPUAdam optimizer(Params{weights}, own), expected(Params{straight}, own);
      const at::Tensor overflow = at::full({5, 7}, std::numeric_limits<float>::infinity());
      for (size_t i = 1; i < 6; ++i) {  // every step is made twice, after one that must leave no trace
        step_subgroup(optimizer, 0, weights, i % 2 == 0 ? overflow : values[5 - i] * 100);
        EXPECT_FALSE(at::equal(weights, straight));
        optimizer.rollback_subgroup(0);
        EXPECT_TRUE(at::equal(weights, straight)) << dtype << i;
        EXPECT_EQ(optimizer.state_of_subgroup(0).step, static_cast<int64_t>(i) - 1);
        step_subgroup(optimizer, 0, weights, values[i]);
        step_subgroup(expected, 0, straight, values[i]);
        EXPECT_TRUE(at::equal(weights, straight)) << dtype << i;
        expect_same_state(optimizer.state_of_subgroup(0), expected.state_of_subgroup(0));
      }
    }
  }
}

TEST(CpuAdamSubgroups, LeaveOtherSubgroupsAloneInARollback) {
  const auto values = optim::test_gradients(2, {9});
  const at::Tensor first = values[0].clone(), second = values[0].clone();
  DeepSpeedCPUAdam optimizer(Params{first}, options());
  step_subgroup(optimizer, 0, first, values[1]);
  step_subgroup(optimizer, 1, second, values[1]);
  const at::Tensor stepped = second.clone();
  optimizer.rollback_subgroup(0);
  EXPECT_TRUE(at::equal(first, values[0]));
  EXPECT_TRUE(at::equal(second, stepped));
  optimizer.rollback_subgroup(1);
  EXPECT_TRUE(at::equal(second, values[0]));
}

TEST(CpuAdamSubgroups, SayWhatCannotBeSteppedOrTakenBack) {
  const at::Tensor first = at::ones({3}), second = at::ones({4});
  DeepSpeedCPUAdam optimizer(Params{first, second}, options());
  const auto error = [&](auto call) { return error_of<UsageError>(call); };
  EXPECT_NE(error([&] { optimizer.rollback_subgroup(4); }).find("rollback_subgroup(4)"), std::string::npos);
  EXPECT_NE(error([&] { optimizer.step_subgroup(4); }).find("no parameter with a gradient"),
            std::string::npos);
  first.mutable_grad() = at::ones({3});
  second.mutable_grad() = at::ones({4});
  EXPECT_NE(error([&] { optimizer.step_subgroup(4); }).find("several parameters"), std::string::npos);
  step_subgroup(optimizer, 4, first, at::ones({3}));
  optimizer.rollback_subgroup(4);
  EXPECT_ERROR(UsageError, optimizer.rollback_subgroup(4), "rollback_subgroup(4)",
               "no step since its last rollback")
      << "a second time";
  step_subgroup(optimizer, 4, first, at::ones({3}));
  optimizer.release_rollbacks();
  EXPECT_ERROR(UsageError, optimizer.rollback_subgroup(4), "rollback_subgroup(4)", "release_rollbacks()")
      << "after the copies were freed";
}

TEST(CpuAdamSubgroups, CarryTheirStateElsewhereAndReturnTheClosuresLoss) {
  const auto values = optim::test_gradients(3, {9});
  const at::Tensor weights = values[0].clone();
  DeepSpeedCPUAdam first(Params{weights}, options());
  step_subgroup(first, 2, weights, values[1]);
  const at::Tensor moved = weights.clone();
  DeepSpeedCPUAdam second(Params{moved}, options());
  second.load_state_of_subgroup(5, first.state_of_subgroup(2));
  step_subgroup(first, 2, weights, values[2]);
  moved.mutable_grad() = values[2];
  EXPECT_EQ(second.step_subgroup(5, [] { return at::full({}, 3.0); }).item<double>(), 3.0);
  EXPECT_TRUE(at::equal(moved, weights));
  EXPECT_EQ(second.state_of_subgroup(5).step, 2);
}

}  // namespace
}  // namespace deepspeed
