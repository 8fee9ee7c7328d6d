// Recomputation, saved tensors on the host and a pipeline of one stage, on a GPU.
#include <vector>

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/checkpointing.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

#include "tests/cuda/require_cuda.h"

namespace deepspeed::testing {
namespace {

using RecomputationOnCuda = CudaTest;
using Tensors = std::vector<at::Tensor>;

struct Block : torch::nn::Module {
  Block()
      : up(register_module("up", torch::nn::Linear(64, 256))),
        down(register_module("down", torch::nn::Linear(256, 64))) {}
  at::Tensor forward(const at::Tensor& hidden) {
    return hidden + torch::dropout(down(torch::gelu(up(hidden))), 0.2, /*train=*/true);
  }
  torch::nn::Linear up, down;
};

enum class Way { kPlain, kRecomputed, kReentrant, kKept, kOffloaded, kHalves };

Tensors results_of(Way way) {
  torch::manual_seed(1);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(std::make_shared<Block>());
    blocks.back()->to(at::kCUDA);
  }
  const at::Tensor input = torch::randn({32, 64}, at::kCUDA).requires_grad_();
  at::Tensor hidden = input;
  {
    std::optional<checkpointing::OffloadActivations> offload;
    if (way == Way::kOffloaded) offload.emplace(checkpointing::OffloadOptions{.min_offload_bytes = 1024});
    for (const auto& block : blocks) {
      const auto forward = [block](const at::Tensor& inner) { return block->forward(inner); };
      switch (way) {
        case Way::kRecomputed:
          hidden = checkpointing::checkpoint(forward, std::move(hidden));
          break;
        case Way::kReentrant:
          hidden = checkpointing::reentrant_checkpoint(forward, std::move(hidden));
          break;
        case Way::kKept:
          hidden = checkpointing::checkpoint_keeping_products(forward, std::move(hidden));
          break;
        default:
          hidden = forward(hidden);
      }
    }
  }
  const at::Tensor loss = hidden.square().sum();
  Tensors results = {loss.detach()};
  if (way == Way::kHalves) {
    autograd::WeightBackward later;
    results.push_back(autograd::backward_inputs({loss}, {torch::ones_like(loss)}, {input}, later).front());
    later.run();
  } else {
    loss.backward();
    results.push_back(input.grad());
  }
  for (const auto& block : blocks) {
    for (const at::Tensor& param : block->parameters()) results.push_back(param.grad());
  }
  return results;
}

TEST_F(RecomputationOnCuda, GivesTheBitsOfAPlainRun) {
  const Tensors expected = results_of(Way::kPlain);
  for (const Way way : {Way::kRecomputed, Way::kReentrant, Way::kKept, Way::kOffloaded, Way::kHalves}) {
    const Tensors results = results_of(way);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(results[i].equal(expected[i])) << "way " << int(way) << ", result " << i;
  }
}

TEST_F(RecomputationOnCuda, APipelineOfOneStageTrains) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 4; ++i) layers.push_back(LayerSpec::of<torch::nn::Linear>(16, 16));
  const auto module = std::make_shared<PipelineModule>(
      layers, PipelineModuleOptions{
                  .num_stages = 1,
                  .loss_fn = [](const at::Tensor& output,
                                const at::Tensor& label) { return (output - label).square().mean(); },
                  .activation_checkpoint_interval = 2});
  const Json config = {{"train_micro_batch_size_per_gpu", 2},
                       {"gradient_accumulation_steps", 3},
                       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
  const auto engine = initialize(module, {.config = config}).engine;
  const std::vector<pipe::MicroBatch> batches(3, {{at::ones({2, 16})}, {at::zeros({2, 16})}});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    last = engine->train_batch(pipe::DataIterator::over(batches)).item<double>();
    if (step == 0) first = last;
  }
  EXPECT_TRUE(engine->device().is_cuda());
  EXPECT_LT(last, first / 2);
}

}  // namespace
}  // namespace deepspeed::testing
