// Pipelines, and the backward in two halves that their schedules use, on a GPU.
#include <memory>
#include <vector>

#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/pipe.h"

#include "tests/autograd/gpt_block.h"
#include "tests/cuda/require_cuda.h"

namespace deepspeed::testing {
namespace {

using PipelineOnCuda = CudaTest;

TEST_F(PipelineOnCuda, BackwardInHalvesGivesThePlainBits) {
  device::seed_generators(1);
  const auto gradients_of = [](bool in_halves) {
    device::seed_generators(2);
    Block block;
    for (const auto& param : block.parameters()) param.set_data(param.to(at::kCUDA));
    const at::Tensor input = at::randn({4, 64, kWidth}, at::kCUDA).requires_grad_();
    const at::Tensor loss = block(input * 1).square().sum();
    std::vector<at::Tensor> gradients;
    if (in_halves) {
      autograd::WeightBackward later;
      gradients.push_back(autograd::backward_inputs({loss}, {at::ones_like(loss)}, {input}, later).front());
      later.run();
    } else {
      loss.backward();
      gradients.push_back(input.grad());
    }
    for (const auto& param : block.parameters()) gradients.push_back(param.grad());
    return gradients;
  };
  const auto plain = gradients_of(false), halves = gradients_of(true);
  ASSERT_EQ(plain.size(), halves.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(halves[i])) << "gradient " << i;
}

TEST_F(PipelineOnCuda, TrainsWithOneStage) {
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
  auto engine = initialize(module, {.config = config}).engine;
  const std::vector<pipe::MicroBatch> batches(3, {{at::ones({2, 16})}, {at::zeros({2, 16})}});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    last = engine->train_batch(pipe::DataIterator::over(batches)).item<double>();
    if (step == 0) first = last;
  }
  EXPECT_TRUE(engine->device().is_cuda());
  EXPECT_LT(last, first / 2);
  engine.reset();
  comm::destroy_process_group();  // else later tests of the process train in its world
}

}  // namespace
}  // namespace deepspeed::testing
