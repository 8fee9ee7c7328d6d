// Recomputation with an engine of ZeRO-3: parameters are gathered in backward for it, and training goes as
// without it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/activation/saved_tensor_offload.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/initialize.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kNetWidth = 12;

struct Residual : torch::nn::Module {
  Residual()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kNetWidth})))),
        up(register_module("up", torch::nn::Linear(kNetWidth, 3 * kNetWidth))),
        down(register_module("down", torch::nn::Linear(3 * kNetWidth, kNetWidth))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto h = down(up(norm(x)).tanh());
    return x + torch::nn::functional::dropout(h, torch::nn::functional::DropoutFuncOptions().p(0.2));
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};

enum class Recomputed { kNothing, kLayers, kReentrant, kProductsKept, kNested, kOnHost };

/// Three layers, and the first again where it is tied.
struct Net : torch::nn::Module {
  Net(Recomputed way, bool tied) : recomputed(way) {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), std::make_shared<Residual>()));
    }
    if (tied) layers.push_back(layers.front());
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& target) { return at::mse_loss(run(x), target); }

  at::Tensor run(at::Tensor h) {
    checkpointing::RegionOptions options;
    options.use_reentrant = recomputed == Recomputed::kReentrant;
    if (recomputed == Recomputed::kReentrant) h = h.detach().requires_grad_();
    if (recomputed == Recomputed::kProductsKept) {
      options.keep = std::make_shared<checkpointing::SelectivePolicy>(
          checkpointing::SelectivePolicy::matmuls_and_attention());
    }
    if (recomputed == Recomputed::kNested) {
      return checkpointing::checkpoint([this](at::Tensor x) { return run_layers(std::move(x), {}); }, h);
    }
    if (recomputed == Recomputed::kOnHost) {
      const SavedTensorOffloadScope scope(offload);
      return run_plain(std::move(h));
    }
    return recomputed == Recomputed::kNothing ? run_plain(std::move(h)) : run_layers(std::move(h), options);
  }
  at::Tensor run_plain(at::Tensor h) {
    for (const auto& layer : layers) h = layer->forward(h);
    return h;
  }
  at::Tensor run_layers(at::Tensor h, const checkpointing::RegionOptions& options) {
    for (const auto& layer : layers) {
      h = checkpointing::checkpoint(
          options, [layer](at::Tensor x) { return layer->forward(x); }, std::move(h));
    }
    return h;
  }

  Recomputed recomputed;
  std::vector<std::shared_ptr<Residual>> layers;
  SavedTensorOffload offload{{.host_bytes = 1 << 20, .least_bytes = 64, .from_cpu = true}};
};

struct Training {
  Json zero;
  Json more = Json::object();
};

/// Trains two steps; returns the losses.
std::vector<double> train(const comm::World& world, const Training& training, Recomputed recomputed,
                          bool tied) {
  device::seed_generators(1);
  auto model = std::make_shared<Net>(recomputed, tied);
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"gradient_accumulation_steps", 2},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", training.zero}};
  config.merge_patch(training.more);
  auto engine = initialize(model, {.config = config, .world = world}).engine;
  device::seed_generators(10 + world.rank());
  std::vector<double> losses;
  for (int micro_step = 0; micro_step < 4; ++micro_step) {
    const auto x = at::randn({4, kNetWidth}), target = at::randn({4, kNetWidth});
    const auto loss = engine->forward(x, target);
    losses.push_back(loss.item<double>());
    engine->backward(loss);
    engine->step();
  }
  return losses;
}

void expect_same_losses(const Training& training, const std::vector<Recomputed>& ways) {
  run_ranks(2, [&](comm::World& world) {
    const auto plain = train(world, training, Recomputed::kNothing, true);
    EXPECT_NE(plain.front(), plain.back());
    for (const auto way : ways) {
      EXPECT_EQ(train(world, training, way, true), plain) << static_cast<int>(way);
    }
  });
}

const std::vector<Recomputed> kAllWays{Recomputed::kLayers, Recomputed::kProductsKept, Recomputed::kNested,
                                       Recomputed::kOnHost};
/// Parameters go as soon as they were used.
const Training kNothingStays{{{"stage", 3},
                              {"stage3_param_persistence_threshold", 0},
                              {"stage3_max_live_parameters", 0},
                              {"stage3_max_reuse_distance", 0}}};

TEST(RecomputationWithAnEngine, TrainsAsWithoutItAtEachStage) {
  for (const int stage : {0, 2, 3}) expect_same_losses({{{"stage", stage}}}, {Recomputed::kLayers});
}

TEST(RecomputationWithAnEngine, TrainsAsWithoutItIfPartitionedParametersGoAtOnce) {
  expect_same_losses(kNothingStays, {Recomputed::kLayers, Recomputed::kNested});
}

TEST(RecomputationWithAnEngine, TrainsAsWithoutItInReentrantRegions) {
  // Without a tied layer: the sum over the uses of one has another order there.
  run_ranks(2, [](comm::World& world) {
    const auto plain = train(world, kNothingStays, Recomputed::kNothing, false);
    EXPECT_EQ(train(world, kNothingStays, Recomputed::kReentrant, false), plain);
  });
}

TEST(RecomputationWithAnEngine, TrainsAsWithoutItWithOffloadToTheHost) {
  expect_same_losses({{{"stage", 3},
                       {"stage3_param_persistence_threshold", 0},
                       {"offload_param", {{"device", "cpu"}}},
                       {"offload_optimizer", {{"device", "cpu"}}}}},
                     kAllWays);
}

TEST(RecomputationWithAnEngine, TrainsAsWithoutItUnderAutocast) {
  Training training = kNothingStays;
  training.more = {{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}};
  expect_same_losses(training, {Recomputed::kLayers, Recomputed::kProductsKept});
}

}  // namespace
}  // namespace deepspeed::testing
