// The four functions about torch_autocast, as a program finds them.
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/deepspeed.h"

#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

struct Mixed : torch::nn::Module {
  Mixed() {
    linear = register_module("linear", torch::nn::Linear(3, 4));
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    gain = register_parameter("gain", norm->weight.detach().clone());
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::Conv2d conv{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  at::Tensor gain;
};

TEST(AutocastFunctions, NameTheDefaultModules) {
  EXPECT_THAT(
      get_default_autocast_lower_precision_modules(),
      ::testing::ElementsAre("torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"));
}

TEST(AutocastFunctions, MarkTheParametersOfAModule) {
  const auto model = std::make_shared<Mixed>();
  EXPECT_FALSE(has_autocast_dtype(model->linear->weight));
  init_autocast_params(model, at::kBFloat16);
  EXPECT_TRUE(is_autocast_initialized());
  for (const at::Tensor& marked : {model->linear->weight, model->linear->bias, model->conv->weight}) {
    EXPECT_TRUE(has_autocast_dtype(marked));
    EXPECT_EQ(precision::get_autocast_dtype(marked), at::kBFloat16);
  }
  EXPECT_FALSE(has_autocast_dtype(model->norm->weight));
  EXPECT_FALSE(has_autocast_dtype(model->gain));
}

TEST(AutocastFunctions, TheLastCallHolds) {
  const auto model = std::make_shared<Mixed>();
  init_autocast_params(model, at::kBFloat16);
  init_autocast_params(model, at::kHalf, std::vector<std::string>{"torch.nn.LayerNorm", "torch.nn.Conv2d"});
  EXPECT_FALSE(has_autocast_dtype(model->linear->weight));
  EXPECT_EQ(precision::get_autocast_dtype(model->norm->weight), at::kHalf);
  EXPECT_EQ(precision::get_autocast_dtype(model->conv->bias), at::kHalf);
  EXPECT_ERROR(UsageError, init_autocast_params(model, at::kLong),
               "init_autocast_params() got dtype Long, expected Half, BFloat16 or Float");
  EXPECT_ERROR(UsageError, init_autocast_params(nullptr, at::kHalf), "the model is null",
               "shared_ptr to a torch::nn::Module");
  EXPECT_TRUE(has_autocast_dtype(model->norm->weight)) << "what is refused changes nothing";
}

TEST(AutocastFunctions, AreInitializedByAnEngineWithTorchAutocast) {
  const auto initialized_by = [](const Json& patch) {
    Json config = {{"train_micro_batch_size_per_gpu", 4}};
    config.merge_patch(patch);
    run_ranks(1, [&](comm::World& world) {
      const bool before = is_autocast_initialized();
      const auto model = std::make_shared<OddNet>();
      (void)initialize(model, {.config = config, .world = world});
      const bool expected = !patch.empty();
      EXPECT_EQ(has_autocast_dtype(model->named_parameters()["first.weight"]), expected);
      EXPECT_EQ(is_autocast_initialized(), before || expected);
    });
  };
  initialized_by(Json::object());
  initialized_by({{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}});
}

/// Whether the gradient of first.weight travels in bf16: half of a sum of bf16 values is one too.
bool travels_in_bf16(const std::shared_ptr<OddNet>& model, const Json& autocast, const comm::World& world) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.0}}}}}};
  if (!autocast.is_null()) config["torch_autocast"] = autocast;
  const auto engine = initialize(model, {.config = config, .world = world}).engine;
  const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
  engine->backward(engine->forward(inputs, targets));
  const at::Tensor gradient = safe_get_full_grad(*engine, model->named_parameters()["first.weight"]);
  return gradient.to(at::kBFloat16).to(at::kFloat).equal(gradient);
}

TEST(AutocastFunctions, ReduceByTheEnginesOwnConfig) {
  run_ranks(2, [](comm::World& world) {
    const auto model = std::make_shared<OddNet>();
    const Json linear = {{"enabled", true}, {"dtype", "bf16"}};
    Json norms = linear;
    norms["lower_precision_safe_modules"] = {"torch.nn.LayerNorm"};
    EXPECT_TRUE(travels_in_bf16(model, linear, world));
    EXPECT_FALSE(travels_in_bf16(model, nullptr, world)) << "no torch_autocast, the marks are old";
    EXPECT_FALSE(travels_in_bf16(model, norms, world)) << "another list";
    init_autocast_params(model, at::kBFloat16);
    EXPECT_FALSE(travels_in_bf16(model, nullptr, world));
  });
}

}  // namespace
}  // namespace deepspeed::testing
