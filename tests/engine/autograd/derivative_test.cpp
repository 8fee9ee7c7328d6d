// Derivatives that a program asks for are those of the model, whatever an engine multiplies its losses by. In
// a loss they train as in torch.
#include <stdexcept>
#include <vector>

#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using torch::autograd::grad;

struct Case {
  const char* name;
  Json patch;
  at::ScalarType dtype;
  double tolerance;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"fp32, a window of 3", {{"gradient_accumulation_steps", 3}}, at::kFloat, 1e-5},
      {"fp16, scale 128, a window of 2",
       {{"gradient_accumulation_steps", 2}, {"fp16", {{"enabled", true}, {"loss_scale", 128}}}},
       at::kHalf,
       2e-2}};
  return all;
}

Json config_of(int stage, const Case& tried) {
  Json config = basic({{"zero_optimization", {{"stage", stage}}}});
  config.merge_patch(tried.patch);
  return config;
}

at::Tensor inputs_of(const Case& tried) {
  return odd_batch(0, 4).first.to(tried.dtype).detach().requires_grad_();
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  const at::Tensor error = (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max();
  EXPECT_LE(error.item<double>(), tolerance * expected.abs().max().item<double>());
}

TEST(Derivative, IsNotScaledForAnOutput) {
  run_ranks(2, [](comm::World& world) {
    for (const Case& tried : cases()) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const bool trains : {true, false}) {
          SCOPED_TRACE(message(tried.name, " stage ", stage, " training ", trains));
          const at::Tensor targets = odd_batch(0, 4).second;
          OddNet plain;
          const at::Tensor x = odd_batch(0, 4).first.detach().requires_grad_();
          const at::Tensor expected = grad({plain.forward(x, targets)}, {x})[0];
          const auto engine = make_engine(config_of(stage, tried), world);
          engine->train(trains);
          const at::Tensor own = inputs_of(tried);
          expect_near(grad({engine->forward(own, targets)}, {own})[0], expected, tried.tolerance);
          const at::Tensor again = inputs_of(tried);
          torch::autograd::backward({engine->forward(again, targets)}, {}, std::nullopt, false, {again});
          expect_near(again.grad(), expected, tried.tolerance);
          EXPECT_FALSE(engine->optimizer()->gradients().is_open());  // neither was a backward of the engine
        }
      }
    }
  });
}

/// How a program makes gradients of a loss that holds a derivative.
enum class Way { kEngine, kDirect, kScaled, kPenaltyAlone };

template <class Model>
at::Tensor penalized(Model& model, const at::Tensor& x, bool penalty_alone) {
  const at::Tensor loss = model.forward(x, odd_batch(0, 4).second).to(at::kFloat);
  const at::Tensor slope = grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  const at::Tensor penalty = slope.to(at::kFloat).pow(2).sum() * 10.0;
  return penalty_alone ? penalty : loss + penalty;
}

TEST(Derivative, TrainsAsInTorchInsideALoss) {
  for (const Case& tried : cases()) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const Way way : {Way::kEngine, Way::kDirect, Way::kScaled, Way::kPenaltyAlone}) {
        SCOPED_TRACE(message(tried.name, " stage ", stage, " way ", static_cast<int>(way)));
        const bool alone = way == Way::kPenaltyAlone;
        OddNet plain;
        penalized(plain, odd_batch(0, 4).first.detach().requires_grad_(), alone).backward();
        const auto engine = make_engine(config_of(stage, tried));
        const int64_t window = engine->config().gradient_accumulation_steps;
        for (int64_t micro = 0; micro < window; ++micro) {
          if (micro > 0) engine->step();
          const at::Tensor loss = penalized(*engine, inputs_of(tried), alone);
          if (way == Way::kEngine) {
            engine->backward(loss);
          } else if (way == Way::kScaled) {
            engine->scale(loss).backward();
          } else {
            loss.backward();
          }
          engine->finish_backward();
        }
        for (const char* name : {"first.weight", "shared.weight", "last.bias"}) {
          SCOPED_TRACE(name);
          const at::Tensor expected = plain.named_parameters()[name].grad();
          if (!expected.defined()) continue;
          const at::Tensor found =
              safe_get_full_grad(*engine, engine->module().named_parameters()[name]) / engine->loss_scale();
          expect_near(found, expected, tried.tolerance);
        }
      }
    }
  }
}

TEST(Derivative, IsScaledForSomeParametersAsForAll) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    const auto engine = make_engine(config_of(stage, cases()[1])),
               whole = make_engine(config_of(stage, cases()[1]));
    const at::Tensor targets = odd_batch(0, 4).second;
    for (const auto& each : {engine, whole}) {
      each->set_gradient_accumulation_boundary(true);
      const at::Tensor weight = each->module().named_parameters()["last.weight"];
      const at::Tensor loss = each->forward(inputs_of(cases()[1]), targets);
      torch::autograd::backward(
          {loss}, {}, std::nullopt, false,
          each == engine ? torch::autograd::variable_list{weight} : torch::autograd::variable_list{});
      each->finish_backward();
    }
    const auto gradient = [](auto& each, const char* name) {
      return safe_get_full_grad(each, each.module().named_parameters()[name]);
    };
    EXPECT_TRUE(gradient(*engine, "last.weight").equal(gradient(*whole, "last.weight")));
    EXPECT_EQ(gradient(*engine, "first.weight").abs().sum().item<double>(), 0.0);
  }
}

TEST(Derivative, LeavesTheWindowIntactIfItFails) {
  const auto engine = make_engine(basic({{"zero_optimization", {{"stage", 2}}}}));
  const at::Tensor x = odd_batch(0, 4).first.detach().requires_grad_();
  const at::Tensor loss = engine->forward(x, odd_batch(0, 4).second);
  x.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no such slope"); });
  EXPECT_THROW(grad({loss}, {x}), std::exception);
  train_step(*engine);
  EXPECT_EQ(engine->global_steps(), 1);
}

}  // namespace
}  // namespace deepspeed::testing
