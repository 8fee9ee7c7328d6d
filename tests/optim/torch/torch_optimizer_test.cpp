#include "deepspeed/optim/torch/torch_optimizer.h"

#include <functional>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/optim/slices/slices.h"
#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

namespace to = torch::optim;
using Make = std::function<std::shared_ptr<to::Optimizer>(const at::Tensor&)>;

std::vector<std::pair<std::string, Make>> known_classes() {
  return {
      {"Adam",
       [](auto& w) {
         return std::make_shared<to::Adam>(std::vector{w}, to::AdamOptions(0.01).amsgrad(true));
       }},
      {"AdamW", [](auto& w) { return std::make_shared<to::AdamW>(std::vector{w}, to::AdamWOptions(0.01)); }},
      {"SGD",
       [](auto& w) { return std::make_shared<to::SGD>(std::vector{w}, to::SGDOptions(0.01).momentum(0.9)); }},
      {"RMSprop",
       [](auto& w) {
         return std::make_shared<to::RMSprop>(std::vector{w},
                                              to::RMSpropOptions(0.01).momentum(0.9).centered(true));
       }},
      {"Adagrad", [](auto& w) {
         return std::make_shared<to::Adagrad>(std::vector{w},
                                              to::AdagradOptions(0.01).initial_accumulator_value(0.1));
       }}};
}

TEST(TorchOptimizer, StepsAFlatSliceAsTorchStepsTheParameter) {
  for (const auto& [name, make] : known_classes()) {
    const auto gradients = test_gradients(6, {4, 5});
    at::Tensor weights = gradients[5].clone().requires_grad_();
    const auto plain = make(weights);
    at::Tensor parameter = gradients[5].clone().requires_grad_();
    TorchOptimizer adapted(make(parameter), {{"w", parameter}});
    EXPECT_EQ(adapted.name(), name);
    EXPECT_TRUE(adapted.is_elementwise());
    EXPECT_EQ(adapted.param_groups()[0].param_names, std::vector<std::string>{"w"});
    TestSlice slice(parameter.detach());
    slice.slice.low_precision = at::zeros({20}, at::kBFloat16);
    for (int i = 0; i < 5; ++i) {
      const double lr = 0.01 * (i + 1);  // a schedule writes into our groups
      adapted.param_groups()[0].set_lr(lr);
      plain->param_groups()[0].options().set_lr(lr);
      weights.mutable_grad() = gradients[static_cast<size_t>(i)] * 0.5;
      plain->step();
      slice.step(adapted, gradients[static_cast<size_t>(i)], 0.5);
    }
    EXPECT_TRUE(at::equal(slice.slice.master.view({4, 5}), weights.detach())) << name;
    EXPECT_TRUE(at::equal(slice.slice.low_precision, slice.slice.master.to(at::kBFloat16))) << name;
  }
}

TEST(TorchOptimizer, KeepsSlicesApart) {
  for (const auto& [name, make] : known_classes()) {
    const auto gradients = test_gradients(4, {7});
    at::Tensor parameter = gradients[0].clone();
    TorchOptimizer both(make(parameter), {{"w", parameter}}), alone(make(parameter), {{"w", parameter}});
    TestSlice a(gradients[0], 0), b(gradients[1], 1), only(gradients[0], 0);
    for (const at::Tensor& gradient : gradients) {
      a.step(both, gradient);
      b.step(both, gradient * 3);
      only.step(alone, gradient);
    }
    EXPECT_TRUE(at::equal(a.slice.master, only.slice.master)) << name;
    EXPECT_EQ(both.state_bytes(), 2 * alone.state_bytes()) << name;
  }
}

TEST(TorchOptimizer, ResumesBitForBit) {
  const std::vector<std::vector<std::string>> names = {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
                                                       {"exp_avg", "exp_avg_sq"},
                                                       {"momentum_buffer"},
                                                       {"square_avg", "momentum_buffer", "grad_avg"},
                                                       {"sum"}};
  size_t index = 0;
  for (const auto& [name, make] : known_classes()) {
    const auto gradients = test_gradients(6, {9});
    at::Tensor parameter = gradients[5].clone();
    TorchOptimizer first(make(parameter), {{"w", parameter}}), second(make(parameter), {{"w", parameter}});
    TestSlice a(parameter);
    for (int i = 0; i < 3; ++i) a.step(first, gradients[static_cast<size_t>(i)]);
    const SliceState state = first.state(0);
    std::vector<std::string> found;
    for (const auto& [tensor_name, tensor] : state.tensors) found.push_back(tensor_name);
    EXPECT_EQ(found, names[index++]) << name;
    EXPECT_EQ(state.step, 3) << name;
    TestSlice b(a.slice.master);
    second.load_state(0, state);
    EXPECT_EQ(second.state(0).tensors.size(), state.tensors.size()) << "before the first step";
    for (int i = 3; i < 5; ++i) {
      a.step(first, gradients[static_cast<size_t>(i)]);
      b.step(second, gradients[static_cast<size_t>(i)]);
    }
    EXPECT_TRUE(at::equal(a.slice.master, b.slice.master)) << name;
  }
}

TEST(TorchOptimizer, StartsAdagradsSumWhereItsGroupSays) {
  at::Tensor parameter = at::ones({3});
  TorchOptimizer optimizer(std::make_shared<to::Adagrad>(std::vector{parameter}), {{"w", parameter}});
  optimizer.param_groups()[0].options.set("initial_accumulator_value", 0.5);
  TestSlice slice(parameter);
  slice.step(optimizer, at::zeros({3}));
  EXPECT_TRUE(at::equal(optimizer.state(0).tensors[0].second, at::full({3}, 0.5)));
}

TEST(TorchOptimizer, FollowsAMasterThatMoves) {
  const auto gradients = test_gradients(4, {9});
  at::Tensor parameter = gradients[3].clone();
  const Make make = known_classes()[0].second;
  TorchOptimizer still(make(parameter), {{"w", parameter}}), moved(make(parameter), {{"w", parameter}});
  TestSlice a(parameter), b(parameter);
  for (int i = 0; i < 3; ++i) {
    a.step(still, gradients[static_cast<size_t>(i)]);
    b.slice.master = b.slice.master.clone();
    b.step(moved, gradients[static_cast<size_t>(i)]);
  }
  EXPECT_TRUE(at::equal(a.slice.master, b.slice.master));
}

// A class that the library does not know: it divides by the norm of the whole parameter.
class Normalized : public to::Optimizer {
 public:
  struct Options : to::OptimizerCloneableOptions<Options> {
    double lr = 0.1;
    double get_lr() const override { return lr; }
    void set_lr(double value) override { lr = value; }
  };
  explicit Normalized(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<Options>()) {}
  at::Tensor step(LossClosure) override {
    for (auto& group : param_groups()) {
      for (auto& p : group.params()) {
        if (!p.grad().defined()) continue;
        EXPECT_EQ(p.dim(), 2) << "an unknown class sees parameters in their own shape";
        p.add_(p.grad() / p.grad().norm(), -group.options().get_lr());
      }
    }
    return {};
  }
};

TEST(TorchOptimizer, GivesAnUnknownClassWholeParameters) {
  at::Tensor parameter = at::ones({2, 3});
  TorchOptimizer optimizer(std::make_shared<Normalized>(std::vector{parameter}), {{"w", parameter}});
  EXPECT_FALSE(optimizer.is_elementwise());
  EXPECT_EQ(optimizer.name(), "Normalized");
  TestSlice slice(parameter);
  const at::Tensor gradient = at::full({2, 3}, 2.0);
  slice.step(optimizer, gradient);
  EXPECT_TRUE(at::allclose(slice.slice.master, at::full({6}, 1 - 0.1 / std::sqrt(6.0))));
  EXPECT_ERROR(NotSupportedError, optimizer.state(0), "cannot read the state of the class Normalized",
               "Adam, AdamW, SGD, RMSprop, Adagrad");
  EXPECT_ERROR(NotSupportedError, optimizer.load_state(0, {}),
               "cannot load the state of the class Normalized", "Adam, AdamW, SGD, RMSprop, Adagrad");
  slice.segments[0].offset_in_param = 3;
  slice.segments[0].in_slice = {0, 3};
  EXPECT_ERROR(UsageError, slice.step(optimizer, gradient),
               "slice 0 holds 3 of the 6 elements of parameter 0", "use ZeRO stage 0")
      << "half a parameter";
}

TEST(TorchOptimizer, RejectsWhatItCannotRun) {
  at::Tensor parameter = at::ones({3}), stranger = at::ones({3});
  EXPECT_ERROR(UsageError, TorchOptimizer(nullptr, {}), "the optimizer is null");
  const auto sgd = std::make_shared<to::SGD>(std::vector{parameter}, to::SGDOptions(0.1).momentum(0.9));
  EXPECT_ERROR(UsageError, TorchOptimizer(sgd, {{"w", stranger}}), "shape [3] that is not one of the model's",
               "model->parameters()");
  parameter.mutable_grad() = at::ones({3});
  sgd->step();
  EXPECT_ERROR(UsageError, TorchOptimizer(sgd, {{"w", parameter}}), "has made steps already",
               "pass a new one and load its state")
      << "it has made a step";
  const auto lbfgs = std::make_shared<to::LBFGS>(std::vector{parameter});
  EXPECT_ERROR(NotSupportedError, TorchOptimizer(lbfgs, {{"w", parameter}}), "LBFGS",
               "use a first-order optimizer");
}

}  // namespace
}  // namespace deepspeed::optim
