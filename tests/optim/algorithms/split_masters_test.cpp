// Optimizers that step masters in two halves, and masters of 16 bits.
#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/split_master.h"
#include "deepspeed/optim/algorithms/adam.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"
#include "deepspeed/optim/torch/torch_optimizer.h"

#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

constexpr int64_t kNumel = 331;

std::unique_ptr<Optimizer> make(const Json& params, const char* type = "AdamW") {
  return make_optimizer(type, params, std::vector<ParamGroup>(1), /*on_host=*/false);
}

void split_in_place(FlatSlice& slice) {
  const at::Tensor master = slice.master;
  slice.master = at::empty({master.numel()}, at::kShort);
  slice.low_precision = at::empty({master.numel()}, at::kBFloat16);
  kernels::split_master(master, slice.low_precision, slice.master);
}

void expect_same_training(Optimizer& of_halves, Optimizer& of_whole) {
  const at::Tensor weights = at::linspace(-2, 2, kNumel);
  TestSlice halves(weights), whole(weights);
  split_in_place(halves.slice);
  ASSERT_TRUE(of_halves.steps_split_masters());
  for (const at::Tensor& gradient : test_gradients(30, {kNumel})) {
    halves.step(of_halves, gradient, 0.5);
    whole.step(of_whole, gradient, 0.5);
  }
  EXPECT_TRUE(
      at::equal(kernels::join_master(halves.slice.low_precision, halves.slice.master), whole.slice.master));
  const SliceState a = of_halves.state(0), b = of_whole.state(0);
  EXPECT_EQ(a.step, 30);
  for (size_t index = 0; index < a.tensors.size(); ++index)
    EXPECT_TRUE(at::equal(a.tensors[index].second, b.tensors.at(index).second)) << a.tensors[index].first;
}

TEST(SplitMasters, AdamStepsThemAsFp32Masters) {
  for (const Json& params : {Json{{"lr", 0.01}}, Json{{"lr", 0.01}, {"moment_dtype", "bf16"}},
                             Json{{"lr", 0.01}, {"torch_adam", true}}}) {
    for (const char* type : {"Adam", "AdamW"}) {
      SCOPED_TRACE(params.dump() + type);
      expect_same_training(*make(params, type), *make(params, type));
    }
  }
  optim::Adam halves({ParamGroup()}, {.moment_dtype = at::kHalf}),
      whole({ParamGroup()}, {.moment_dtype = at::kHalf});
  expect_same_training(halves, whole);
}

TEST(SplitMasters, AreSteppedInAnEngineByAClassOfThisLibrary) {
  const auto make_client = [](const at::Tensor& parameter) {
    return std::make_unique<TorchOptimizer>(
        std::make_shared<DeepSpeedCPUAdam>(std::vector<at::Tensor>{parameter}, DeepSpeedCPUAdamOptions()),
        std::vector<std::pair<std::string, at::Tensor>>{{"weight", parameter}});
  };
  const at::Tensor parameter = at::ones({kNumel}).requires_grad_();
  expect_same_training(*make_client(parameter), *make_client(parameter));
}

TEST(SixteenBitMasters, AdamStepsThemAsFp32CopiesOfThem) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const auto direct = make({{"lr", 0.01}, {"moment_dtype", "bf16"}}),
               copying = make({{"lr", 0.01}, {"moment_dtype", "bf16"}});
    ASSERT_TRUE(direct->steps_sixteen_bit_masters());
    TestSlice narrow(at::linspace(-2, 2, kNumel).to(dtype)), wide(at::linspace(-2, 2, kNumel));
    wide.slice.low_precision = narrow.slice.master.clone();
    for (const at::Tensor& gradient : test_gradients(10, {kNumel})) {
      narrow.step(*direct, gradient, 0.5);
      wide.slice.master = wide.slice.low_precision.to(at::kFloat);
      wide.step(*copying, gradient, 0.5);
    }
    EXPECT_TRUE(at::equal(narrow.slice.master, wide.slice.low_precision)) << dtype;
  }
}

TEST(SplitMasters, AreRefusedByOptimizersThatNeedFp32) {
  for (const auto& [type, params] :
       {std::pair{"Lion", Json::object()}, std::pair{"SGD", Json{{"lr", 0.1}}},
        std::pair{"Adagrad", Json::object()}, std::pair{"RMSprop", Json::object()},
        std::pair{"Adam", Json{{"torch_adam", true}, {"amsgrad", true}}}}) {
    const auto optimizer = make(params, type);
    EXPECT_FALSE(optimizer->steps_split_masters()) << type;
    EXPECT_FALSE(optimizer->steps_sixteen_bit_masters()) << type;
    if (std::string(type) == "RMSprop") continue;  // torch's own class
    TestSlice slice(at::ones({kNumel}));
    split_in_place(slice.slice);
    EXPECT_ERROR(UsageError, slice.step(*optimizer, at::ones({kNumel})),
                 "master has dtype Short, expected Float or Double")
        << type;
  }
}

}  // namespace
}  // namespace deepspeed::optim
