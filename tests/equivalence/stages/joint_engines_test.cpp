// Two engines that share one loss train as one engine with both models does.
#include <limits>

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

using TowerEngine = DeepSpeedEngine<Tower>;

/// The ways to run backward of a shared loss.
enum class Way { kDirect, kScaledByLeft, kScaledByBoth, kByRight };
constexpr Way kWays[] = {Way::kDirect, Way::kScaledByLeft, Way::kScaledByBoth, Way::kByRight};

void backward(Way way, const at::Tensor& loss, TowerEngine& left, TowerEngine& right) {
  if (way == Way::kByRight) {
    right.backward(loss);
  } else if (way == Way::kScaledByLeft) {
    left.scale(loss).backward();
  } else if (way == Way::kScaledByBoth) {
    right.scale(left.scale(loss)).backward();
  } else {
    loss.backward();
  }
  left.finish_backward();
  right.finish_backward();
}

Json joint_config(const std::string& precision, int stage, int accumulation) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"gradient_accumulation_steps", accumulation},
                 {"gradient_clipping", 0.0},  // its norm is of an engine's own parameters
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"weight_decay", 0.1}}}}},
                 {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 90}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  if (precision == "fp16") {
    config["log_level"] = "error";
    config["fp16"].update({{"initial_scale_power", 8}, {"loss_scale_window", 3}, {"hysteresis", 1}});
  }
  return config;
}

void expect_equal(torch::nn::Module& one, torch::nn::Module& other, const std::string& what) {
  for (const auto& item : one.named_parameters()) {
    EXPECT_TRUE(item.value().equal(other.named_parameters()[item.key()])) << what << ": " << item.key();
  }
}

/// The targets of `bad_micro` make all gradients infinite, on rank 1.
void train_both_ways(const comm::World& world, const Json& config, const std::string& what,
                     Way way = Way::kDirect, int bad_micro = -1) {
  const auto both = std::make_shared<BothTowers>(), parts = std::make_shared<BothTowers>();
  const auto initial = both->left->in->weight.detach().clone();
  const auto one = initialize(both, {.config = config, .world = world}).engine;
  const auto left = initialize(parts->left, {.config = config, .world = world}).engine;
  const auto right = initialize(parts->right, {.config = config, .world = world}).engine;
  for (int micro = 0; micro < 8; ++micro) {
    auto [inputs, targets] = odd_batch(4 * (2 * micro + world.rank()), 4);
    inputs = inputs.to(both->left->in->weight.scalar_type());
    if (micro == bad_micro && world.rank() == 1) targets.fill_(std::numeric_limits<float>::infinity());
    one->backward(one->forward(inputs, targets));
    one->step();
    backward(way, shared_loss(left->forward(inputs), right->forward(inputs), targets), *left, *right);
    for (auto* engine : {left.get(), right.get()}) {
      engine->step();
      EXPECT_EQ(engine->was_step_applied(), one->was_step_applied()) << what << " micro batch " << micro;
      EXPECT_EQ(engine->loss_scale(), one->loss_scale()) << what << " micro batch " << micro;
    }
  }
  EXPECT_EQ(one->skipped_steps(), bad_micro < 0 ? 0 : 1) << what;
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

TEST(JointEngines, EqualOneEngineInFp16OverAnOverflow) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      for (const int accumulation : {1, 2}) {
        for (const Way way : kWays) {
          train_both_ways(
              world, joint_config("fp16", stage, accumulation),
              message("stage ", stage, " accumulation ", accumulation, " way ", static_cast<int>(way)), way,
              /*bad_micro=*/3);
        }
      }
    }
  });
}

struct Towers {
  std::shared_ptr<BothTowers> models = std::make_shared<BothTowers>();
  std::shared_ptr<TowerEngine> left, right;

  Towers(const Json& config, const comm::World& world)
      : left(initialize(models->left, {.config = config, .world = world}).engine),
        right(initialize(models->right, {.config = config, .world = world}).engine) {}

  at::Tensor loss(int micro, const comm::World& world) {
    const auto [inputs, targets] = odd_batch(4 * (2 * micro + world.rank()), 4);
    const at::Tensor half = inputs.to(at::kHalf);
    return shared_loss(left->forward(half), right->forward(half), targets);
  }
};

// The left engine overflows alone and halves its scale: from then on the two differ, and each must divide its
// gradients by its own. What is right follows from engines of a constant scale, the left of which leaves that
// step out.
TEST(JointEngines, HaveLossScalesOfTheirOwn) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      for (const Way way : kWays) {
        SCOPED_TRACE(message("stage ", stage, " way ", static_cast<int>(way)));
        Json dynamic = joint_config("fp16", stage, 1), constant = dynamic;
        dynamic["fp16"]["loss_scale_window"] = 100;
        constant["fp16"] = {{"enabled", true}, {"loss_scale", 256}};
        Towers towers(dynamic, world), expected(constant, world);
        bool overflows = false;
        towers.models->left->in->weight.register_hook([&overflows](const at::Tensor& gradient) {
          return overflows ? gradient * std::numeric_limits<double>::infinity() : gradient;
        });
        for (int micro = 0; micro < 6; ++micro) {
          overflows = micro == 2 && world.rank() == 0;
          backward(way, towers.loss(micro, world), *towers.left, *towers.right);
          backward(Way::kDirect, expected.loss(micro, world), *expected.left, *expected.right);
          towers.left->step();
          towers.right->step();
          EXPECT_EQ(towers.left->was_step_applied(), micro != 2);
          EXPECT_TRUE(towers.right->was_step_applied());
          if (micro == 2) {
            expected.left->zero_grad();
          } else {
            expected.left->step();
          }
          expected.right->step();
        }
        EXPECT_EQ(towers.left->loss_scale(), 128.0);
        EXPECT_EQ(towers.right->loss_scale(), 256.0);
        // Scales are powers of two, but what is small in fp16 rounds otherwise under another one.
        for (const auto& item : expected.models->named_parameters()) {
          EXPECT_TRUE(towers.models->named_parameters()[item.key()]
                          .to(at::kFloat)
                          .allclose(item.value().to(at::kFloat), 4e-3, 1e-3))
              << item.key();
        }
      }
    }
  });
}

// Two losses in one backward, each scaled for an engine of its own.
TEST(JointEngines, TakeASumOfScaledLosses) {
  run_ranks(2, [](comm::World& world) {
    Json config = joint_config("fp16", 1, 1);
    Json other = config;
    other["fp16"]["initial_scale_power"] = 4;
    std::vector<at::Tensor> weights;
    for (const bool together : {false, true}) {
      const auto models = std::make_shared<BothTowers>();
      const auto left = initialize(models->left, {.config = config, .world = world}).engine;
      const auto right = initialize(models->right, {.config = other, .world = world}).engine;
      const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
      const at::Tensor half = inputs.to(at::kHalf);
      const at::Tensor first = at::mse_loss(left->forward(half).to(at::kFloat), targets);
      const at::Tensor second = at::mse_loss(right->forward(half).to(at::kFloat), targets);
      if (together) {
        (left->scale(first) + right->scale(second)).backward();
      } else {
        left->backward(first);
        right->backward(second);
      }
      left->step();
      right->step();
      weights.push_back(models->right->in->weight.detach().to(at::kFloat));
    }
    EXPECT_TRUE(weights[0].allclose(weights[1], 4e-3, 1e-3));
  });
}

}  // namespace
}  // namespace deepspeed::testing
