// Two engines that share one loss train as one engine with both models does.
#include <ATen/ops/gelu.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/support/formula_training.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

struct Tower : torch::nn::Module {
  Tower() {
    in = register_module("in", torch::nn::Linear(7, 13));
    out = register_module("out", torch::nn::Linear(13, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(at::gelu(in->forward(x))); }
  torch::nn::Linear in{nullptr}, out{nullptr};
};

at::Tensor shared_loss(const at::Tensor& left, const at::Tensor& right, const at::Tensor& targets) {
  return at::mse_loss(left.to(at::kFloat) * right.to(at::kFloat) + left.to(at::kFloat), targets);
}

struct BothTowers : torch::nn::Module {
  BothTowers() {
    left = register_module("left", std::make_shared<Tower>());
    right = register_module("right", std::make_shared<Tower>());
    fill_parameters(*this, 0.4);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
    return shared_loss(left->forward(x), right->forward(x), targets);
  }
  std::shared_ptr<Tower> left, right;
};

Json joint_config(const std::string& precision, int stage, int accumulation) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"gradient_accumulation_steps", accumulation},
                 {"gradient_clipping", 0.0},  // its norm is of an engine's own parameters
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}}},
                 {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 90}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  return config;
}

void expect_equal(torch::nn::Module& one, torch::nn::Module& other, const std::string& what) {
  for (const auto& item : one.named_parameters()) {
    EXPECT_TRUE(item.value().equal(other.named_parameters()[item.key()])) << what << ": " << item.key();
  }
}

void train_both_ways(const comm::World& world, const Json& config, const std::string& what) {
  const auto both = std::make_shared<BothTowers>(), parts = std::make_shared<BothTowers>();
  const auto initial = both->left->in->weight.detach().clone();
  const auto one = std::get<0>(initialize(both, {.config = config, .world = world}));
  const auto left = std::get<0>(initialize(parts->left, {.config = config, .world = world}));
  const auto right = std::get<0>(initialize(parts->right, {.config = config, .world = world}));
  for (int micro = 0; micro < 8; ++micro) {
    auto [inputs, targets] = odd_batch(4 * (2 * micro + world.rank()), 4);
    inputs = inputs.to(both->left->in->weight.scalar_type());
    one->backward(one->forward(inputs, targets));
    one->step();
    shared_loss(left->forward(inputs), right->forward(inputs), targets).backward();
    for (auto* engine : {left.get(), right.get()}) {
      engine->finish_backward();
      engine->step();
    }
  }
  EXPECT_EQ(left->global_steps(), one->global_steps());
  EXPECT_FALSE(both->left->in->weight.detach().to(at::kFloat).allclose(initial, 1e-3, 1e-3)) << what;
  expect_equal(*both->left, *parts->left, what + " left");
  expect_equal(*both->right, *parts->right, what + " right");
}

TEST(JointEngines, EqualOneEngineWithBothModels) {
  run_ranks(2, [](comm::World& world) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const int stage : {0, 1, 2}) {
        for (const int accumulation : {1, 2}) {
          train_both_ways(world, joint_config(precision, stage, accumulation),
                          message(precision, " stage ", stage, " accumulation ", accumulation));
        }
      }
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
