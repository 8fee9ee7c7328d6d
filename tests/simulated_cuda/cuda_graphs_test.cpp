// Forwards and backwards that the config has captured as CUDA graphs train as those that run kernel by
// kernel.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "tests/engine/make_engine.h"
#include "tests/simulated_cuda/device/streams.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

Json graphs(Json patch = Json::object()) {
  Json config = basic({{"cuda_graphs", {{"enabled", true}, {"warmup_steps", 2}}}});
  config.merge_patch(patch);
  return config;
}

struct GraphedRun {
  std::vector<at::Tensor> losses, weights;
  simulated::HostWaits waits;  // of the last step
  int64_t launches = 0;        // of the last step
};

template <class Net>
GraphedRun train_net(const Json& config, const comm::World& world, int steps = 7) {
  manual_seed(5);
  const auto engine = initialize(std::make_shared<Net>(), {.config = config, .world = world}).engine;
  const auto type = engine->module().parameters().front().scalar_type();
  const int64_t rank = engine->rank();
  const int64_t windows = engine->config().gradient_accumulation_steps;
  GraphedRun trained;
  std::vector<at::Tensor> kept;  // until the end: another replay must not change them
  for (int step = 0; step < steps; ++step) {
    std::vector<std::pair<at::Tensor, at::Tensor>> batches;
    for (int64_t micro = 0; micro < windows; ++micro) {
      const auto [inputs, targets] = odd_batch(4 * (step * windows + micro) + rank, 4);
      batches.emplace_back(inputs.to(at::kCUDA, type), targets.to(at::kCUDA));
    }
    simulated::take_host_waits();
    const int64_t launches = simulated::num_launches();
    for (const auto& [inputs, targets] : batches) {
      kept.push_back(engine->forward(inputs, targets));
      engine->backward(kept.back());
      engine->step();
    }
    trained.launches = simulated::num_launches() - launches;
    trained.waits = simulated::take_host_waits();
  }
  for (const at::Tensor& loss : kept) trained.losses.push_back(loss.detach().cpu());
  for (const at::Tensor& weight : engine->module().parameters())
    trained.weights.push_back(weight.detach().cpu());
  return trained;
}

void expect_equal_runs(const GraphedRun& a, const GraphedRun& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_TRUE(a.losses[i].equal(b.losses[i])) << "loss " << i;
  for (size_t i = 0; i < a.weights.size(); ++i)
    EXPECT_TRUE(a.weights[i].equal(b.weights[i])) << "weight " << i;
}

/// Trains with graphs and without, and expects the same bits. Returns the run with graphs.
template <class Net>
GraphedRun expect_same_training(Json config, const comm::World& world) {
  const GraphedRun with = train_net<Net>(config, world);
  config.erase("cuda_graphs");
  const GraphedRun without = train_net<Net>(config, world);
  expect_equal_runs(with, without);
  EXPECT_LT(with.launches, without.launches);
  return with;
}

TEST(GraphedTraining, IsBitEqualToKernels) {
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](comm::World& world) {
      for (const int stage : {0, 1, 2}) {
        for (const char* const precision : {"", "bf16", "fp16"}) {
          for (const int windows : {1, 3}) {
            SCOPED_TRACE(message("stage ", stage, " ", precision, " windows of ", windows));
            Json config = graphs({{"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 40}}},
                                  {"gradient_clipping", 0.1},
                                  {"gradient_accumulation_steps", windows}});
            if (*precision != 0) config[precision] = {{"enabled", true}};
            const GraphedRun with = expect_same_training<OddNet>(config, world);
            EXPECT_LE(with.waits.waits + with.waits.needless, 1)
                << with.waits.text();  // for the norm's check
          }
        }
      }
    });
  }
}

TEST(GraphedTraining, IsBitEqualUnderAutocastAndWithOffload) {
  run_ranks(1, [](comm::World& world) {
    expect_same_training<OddNet>(graphs({{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}}),
                                 world);
    expect_same_training<OddNet>(
        graphs({{"zero_optimization", {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}}}), world);
  });
}

struct WithDropout : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor hidden = torch::dropout(first(x).tanh(), 0.3, is_training());
    return (second(hidden) - targets).square().mean();
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(7, 16));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(16, 5));
};

TEST(GraphedTraining, IsBitEqualWithTorchsDropout) {
  run_ranks(1, [](comm::World& world) { expect_same_training<WithDropout>(graphs(), world); });
}

}  // namespace
}  // namespace deepspeed::testing
