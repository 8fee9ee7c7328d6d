// The kinds of models and outputs that initialize() and forward() take.
#include <memory>
#include <optional>
#include <tuple>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;

struct TwoLayersImpl : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(7, 3))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(3, 5))};
  at::Tensor forward(const at::Tensor& x) { return out(in(x)); }
};
TORCH_MODULE(TwoLayers);

struct OddSamples {
  size_t size() const { return 8; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    return odd_sample(static_cast<int64_t>(index));
  }
};

/// Whether a step of `engine`, whose forward takes 7 numbers and gives 5, lowers the loss.
template <class Engine>
void expect_that_it_trains(Engine& engine) {
  const auto [inputs, targets] = odd_batch(0, 4);
  const auto loss_of = [&] { return at::mse_loss(engine.forward(inputs), targets); };
  const at::Tensor before = loss_of();
  engine.backward(before);
  engine.step();
  EXPECT_LT(loss_of().template item<double>(), before.item<double>());
}

TEST(ModelTypes, HoldersTrainWithTheirArgumentsInBraces) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Json config = basic({{"zero_optimization", {{"stage", stage}}}});
    auto [own, optimizer, loader, schedule] = initialize(TwoLayers(), {.config = config});
    expect_that_it_trains(*own);
    torch::nn::Linear linear(7, 5);
    auto [layer, layer_optimizer, none, no_schedule] = initialize(linear, {.config = config});
    expect_that_it_trains(*layer);
    torch::nn::Sequential layers(torch::nn::Linear(7, 3), torch::nn::Linear(3, 5));
    expect_that_it_trains(*initialize(layers, {.config = config}).engine);
  }
}

TEST(ModelTypes, HoldersTakeTrainingDataAndACollateFunction) {
  torch::nn::Linear linear(7, 5);
  auto [engine, optimizer, loader, schedule] = initialize(linear, OddSamples{}, {.config = basic()});
  for (auto& [inputs, targets] : *loader) EXPECT_EQ(engine->forward(inputs).sizes(), targets.sizes());
  const auto count = [](const std::vector<std::pair<at::Tensor, at::Tensor>>& samples) {
    return samples.size();
  };
  const auto counts = initialize(TwoLayers(), OddSamples{}, {.config = basic()}, count).training_dataloader;
  for (const size_t size : *counts) EXPECT_EQ(size, 4U);
}

TEST(ModelTypes, RefuseAnEmptyHolderClearly) {
  EXPECT_THAT(error_of<UsageError>([] { initialize(TwoLayers(nullptr), {.config = basic()}); }),
              HasSubstr("null"));
  EXPECT_THAT(error_of<UsageError>([] { initialize(torch::nn::AnyModule(), {.config = basic()}); }),
              HasSubstr("null"));
}

TEST(ModelTypes, TrainAnAnyModuleAsItsClass) {
  const torch::nn::AnyModule model{TwoLayers()};
  auto [engine, optimizer, loader, schedule] = initialize(model, OddSamples{}, {.config = basic()});
  expect_that_it_trains(*engine);
  for (auto& [inputs, targets] : *loader) EXPECT_EQ(engine->forward(inputs).sizes(), targets.sizes());
}

TEST(ModelTypes, APointerToTheBaseClassHasAllButForward) {
  const auto model = std::make_shared<TwoLayersImpl>();
  const std::shared_ptr<torch::nn::Module> base = model;
  const auto engine = initialize(base, {.config = basic()}).engine;
  const auto [inputs, targets] = odd_batch(0, 4);
  const at::Tensor before = model->in->weight.detach().clone();
  engine->backward(at::mse_loss(model->forward(inputs), targets));
  engine->step();
  EXPECT_FALSE(at::equal(model->in->weight, before));
  // Its forward() stops with a static_assert that says what to pass.
  EXPECT_FALSE((TakesInForward<torch::nn::Module, at::Tensor>));
  EXPECT_FALSE((TakesInForward<TwoLayersImpl, at::Tensor, at::Tensor>));
  EXPECT_TRUE((TakesInForward<TwoLayersImpl, at::Tensor>));
}

struct Keeper : TwoLayersImpl {
  at::Tensor kept;
  void forward(const at::Tensor& x) { kept = TwoLayersImpl::forward(x); }
};

TEST(ModelTypes, LetAForwardReturnNothing) {
  for (const int stage : {0, 3}) {
    const auto engine =
        initialize(std::make_shared<Keeper>(), {.config = basic({{"zero_optimization", {{"stage", stage}}}})})
            .engine;
    const auto [inputs, targets] = odd_batch(0, 4);
    engine->forward(inputs);
    engine->backward(at::mse_loss(engine->module().kept, targets));
    engine->step();
    EXPECT_EQ(engine->global_steps(), 1);
  }
}

struct ThreeOutputs {
  at::Tensor data, target, loss;
};
struct Reporting : TwoLayersImpl {
  ThreeOutputs forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor data = TwoLayersImpl::forward(x);
    return {data, y, at::mse_loss(data, y)};
  }
};

TEST(ModelTypes, EveryMemberOfAnOutputCarriesTheLossScale) {
  const Json config = basic({{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}});
  const auto norm_of = [&](bool direct) {
    at::manual_seed(3);
    const auto engine = initialize(std::make_shared<Reporting>(), {.config = config}).engine;
    const auto [inputs, targets] = odd_batch(0, 4);
    const at::Tensor loss = engine->forward(inputs.to(at::kHalf), targets.to(at::kHalf)).loss;
    direct ? loss.backward() : static_cast<void>(engine->backward(loss));
    engine->step();
    return engine->get_global_grad_norm().value();
  };
  const double expected = norm_of(false);
  EXPECT_NEAR(norm_of(true), expected, 1e-2 * expected);
}

TEST(ModelTypes, BatchNormInHalfNamesTheKeyThatItWants) {
  struct Normed : torch::nn::Module {
    torch::nn::Linear in{register_module("in", torch::nn::Linear(7, 5))};
    torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(5))};
    at::Tensor forward(const at::Tensor& x) { return norm(in(x)); }
  };
  const at::Tensor inputs = odd_batch(0, 4).first.to(at::kBFloat16);
  const auto run = [&](Json config) {
    const auto engine = initialize(std::make_shared<Normed>(), {.config = basic(std::move(config))}).engine;
    return engine->forward(inputs).sizes().vec();
  };
  EXPECT_THAT(error_of<UsageError>([&] {
                run({{"bf16", {{"enabled", true}}}});
              }),
              ::testing::AllOf(HasSubstr("'norm.running_mean' is Float"),
                               HasSubstr("data_types.buffer_dtype to \"bf16\"")));
  EXPECT_EQ(run({{"bf16", {{"enabled", true}}}, {"data_types", {{"buffer_dtype", "bf16"}}}}),
            (std::vector<int64_t>{4, 5}));
}

}  // namespace
}  // namespace deepspeed::testing
