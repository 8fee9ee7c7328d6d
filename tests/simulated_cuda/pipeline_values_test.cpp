// What a stage of a pipeline makes on the host travels between devices like all else.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

/// Makes a mask on the host beside its values.
struct MaskMakerImpl : torch::nn::Module {
  MaskMakerImpl() : linear(register_module("linear", torch::nn::Linear(4, 4))) {}
  std::vector<at::Tensor> forward(const at::Tensor& values) {
    return {linear(values), at::arange(4, at::kFloat).remainder(2)};
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(MaskMaker);

struct MaskUserImpl : torch::nn::Module {
  MaskUserImpl() : linear(register_module("linear", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& values, const at::Tensor& mask) { return linear(values * mask); }
  torch::nn::Linear linear;
};
TORCH_MODULE(MaskUser);

TEST(PipelineValues, TravelFromTheHostToTheNextStagesDevice) {
  run_ranks(2, [](comm::World&) {
    const std::vector<LayerSpec> layers = {LayerSpec::of<MaskMaker>(), LayerSpec::of<MaskUser>()};
    PipelineModuleOptions options{.num_stages = 2, .partition_method = "uniform"};
    options.loss_fn = [](const at::Tensor& output, const at::Tensor& label) {
      return (output - label).square().mean().cpu();  // such a loss too
    };
    options.additional_losses = [] {
      return std::map<std::string, at::Tensor>{{"extra", at::full({}, 2.0)}};
    };
    const Json config = {{"train_micro_batch_size_per_gpu", 2},
                         {"gradient_accumulation_steps", 2},
                         {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
    const auto engine =
        initialize(std::make_shared<PipelineModule>(layers, options), {.config = config}).engine;
    ASSERT_TRUE(engine->device().is_cuda());
    const std::vector<pipe::MicroBatch> batches(2, {{at::ones({2, 4})}, {at::zeros({2, 4})}});
    double first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
      last = engine->train_batch(pipe::DataIterator::over(batches)).item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, first / 2);
    EXPECT_EQ(engine->get_additional_losses()->at("extra").item<double>(), 2.0);
    const auto evaluated = engine->eval_batch(pipe::DataIterator::over(batches));
    EXPECT_LT(evaluated.loss.item<double>(), first / 2);
  });
}

}  // namespace
}  // namespace deepspeed::testing
