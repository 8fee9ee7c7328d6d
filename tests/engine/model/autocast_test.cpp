// torch_autocast and data_types.grad_accum_dtype.
#include "deepspeed/precision/autocast.h"

#include <limits>

#include <ATen/autocast_mode.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using precision::AutocastScope;
using precision::get_autocast_dtype;
using precision::has_autocast_dtype;
using testing::basic;
using testing::make_engine;
using testing::odd_batch;
using testing::OddNet;
using testing::train_step;

Json autocast_sgd(Json patch = Json::object()) {
  Json config = basic({{"gradient_clipping", 0.0}, {"zero_allow_untested_optimizer", true}});
  config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.1}}}};
  config.merge_patch(patch);
  return config;
}

Json autocast_to(const char* dtype) { return {{"torch_autocast", {{"enabled", true}, {"dtype", dtype}}}}; }

template <class Engine>
at::Tensor param(Engine& engine, const char* name) {
  return engine->module().named_parameters()[name];
}

/// An engine of a model that its program has converted before initialize().
auto engine_of_converted(at::ScalarType dtype, const Json& config) {
  auto model = std::make_shared<OddNet>();
  model->to(dtype);
  return initialize(model, {.config = config}).engine;
}

TEST(Autocast, LeavesTheModelInTheTypeThatItsProgramHasChosen) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const Json config = autocast_sgd({{"zero_optimization", {{"stage", stage}}}});
    Json in_autocast = config;
    in_autocast.update(autocast_to("bf16"));
    const auto plain = engine_of_converted(at::kBFloat16, config);
    const auto engine = engine_of_converted(at::kBFloat16, in_autocast);
    EXPECT_TRUE(engine->config().bf16.enabled);
    for (int step = 0; step < 3; ++step)
      EXPECT_NEAR(train_step(*engine, 4 * step), train_step(*plain, 4 * step), 0.02) << "step " << step;
  }
}

TEST(Autocast, ScalesTheLossOfASixteenBitModelForFp16) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto engine = engine_of_converted(dtype, autocast_sgd(autocast_to("fp16")));
    EXPECT_EQ(engine->loss_scale(), 65536.0) << dtype;
  }
  EXPECT_EQ(engine_of_converted(at::kHalf, autocast_sgd(autocast_to("bf16")))->loss_scale(), 1.0);
}

TEST(Autocast, RunsTheForwardAsTorchDoes) {
  const auto engine = make_engine(autocast_sgd(autocast_to("bf16")));
  const auto plain = make_engine(autocast_sgd());
  OddNet reference;
  for (int step = 0; step < 3; ++step) {
    const auto [inputs, targets] = odd_batch(4 * step, 4);
    at::Tensor loss;
    {
      const AutocastScope scope(at::kCPU, at::kBFloat16);
      loss = reference.forward(inputs, targets);
    }
    loss.backward();
    EXPECT_EQ(train_step(*engine, 4 * step), loss.item<double>()) << "step " << step;
    EXPECT_NE(train_step(*plain, 4 * step), loss.item<double>()) << "step " << step;
    const c10::NoGradGuard no_grad;
    for (at::Tensor& weight : reference.parameters()) {
      if (weight.grad().defined()) weight.sub_(weight.grad(), 0.1);
      weight.mutable_grad().reset();
    }
  }
  EXPECT_TRUE(
      param(engine, "first.weight").allclose(reference.named_parameters()["first.weight"], 1e-6, 1e-7));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Autocast, MarksTheParametersOfTheListedModules) {
  const auto engine = make_engine(autocast_sgd(autocast_to("torch.bfloat16")));
  EXPECT_TRUE(precision::is_autocast_initialized());
  EXPECT_EQ(engine->torch_autocast_dtype(), at::kBFloat16);
  EXPECT_EQ(get_autocast_dtype(param(engine, "first.weight")), at::kBFloat16);
  EXPECT_TRUE(has_autocast_dtype(param(engine, "last.bias")));
  EXPECT_FALSE(has_autocast_dtype(param(engine, "norm.weight")));
  EXPECT_FALSE(has_autocast_dtype(param(engine, "gain")));
  EXPECT_ERROR(UsageError, get_autocast_dtype(param(engine, "gain")), "sizes [1] has no autocast dtype",
               "init_autocast_params()");

  Json norms = autocast_sgd(autocast_to("bf16"));
  norms["torch_autocast"]["lower_precision_safe_modules"] = {"torch.nn.LayerNorm"};
  const auto other = make_engine(norms);
  EXPECT_TRUE(has_autocast_dtype(param(other, "norm.weight")));
  EXPECT_FALSE(has_autocast_dtype(param(other, "first.weight")));
  EXPECT_FALSE(make_engine(autocast_sgd())->torch_autocast_enabled());
}

TEST(Autocast, ReducesMarkedGradientsInTheLowerPrecision) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto engine = make_engine(autocast_sgd(autocast_to("bf16")), world);
    const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
    engine->backward(engine->forward(inputs, targets));
    const auto is_bf16 = [&](const char* name) {
      const at::Tensor gradient = param(engine, name).grad();
      return gradient.to(at::kBFloat16).to(at::kFloat).equal(gradient);  // halving the sum is exact
    };
    EXPECT_TRUE(is_bf16("first.weight"));
    EXPECT_TRUE(is_bf16("last.weight"));
    EXPECT_FALSE(is_bf16("norm.weight"));
  });
}

TEST(Autocast, StagesAgree) {
  testing::run_ranks(2, [](comm::World& world) {
    std::vector<at::Tensor> weights;
    for (const int stage : {0, 1, 2}) {
      Json config = autocast_sgd(autocast_to("bf16"));
      config["zero_optimization"] = {{"stage", stage}, {"reduce_bucket_size", 60}};
      const auto engine = make_engine(config, world);
      for (int step = 0; step < 3; ++step) train_step(*engine, 4 * (2 * step + world.rank()));
      weights.push_back(param(engine, "first.weight").detach());
      EXPECT_TRUE(weights.back().equal(weights.front())) << "stage " << stage;
    }
  });
}

TEST(Autocast, ScalesTheLossAndSkipsOverflowsInFp16) {
  const auto engine = make_engine(autocast_sgd(autocast_to("fp16")));
  EXPECT_EQ(engine->loss_scale(), 65536.0);
  const at::Tensor before = param(engine, "last.bias").detach().clone();
  const auto [inputs, targets] = odd_batch(0, 4);
  engine->backward(engine->forward(inputs, targets.mul(std::numeric_limits<double>::infinity())));
  engine->step();
  EXPECT_FALSE(engine->was_step_applied());
  EXPECT_EQ(engine->loss_scale(), 32768.0);
  EXPECT_TRUE(param(engine, "last.bias").equal(before));
}

TEST(GradAccumDtype, KeepsSumsInTheDtypeThatIsAsked) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      Json config = autocast_sgd({{"bf16", {{"enabled", true}}}, {"gradient_accumulation_steps", 8}});
      config["zero_optimization"] = {{"stage", stage}};
      for (const char* dtype : {"bf16", "fp32"}) {
        config["data_types"] = {{"grad_accum_dtype", dtype}};
        const auto engine = make_engine(config, world);
        const int64_t padded = engine->optimizer()->store().groups()[0].layout.padded_numel();
        const int64_t kept = stage == 2 ? padded / world.size() : padded;
        EXPECT_EQ(engine->memory().gradients, kept * (dtype == std::string("fp32") ? 4 : 2));
        // One large gradient and many small ones, which bf16 sums lose.
        for (int micro = 0; micro < 8; ++micro) {
          const double size = micro == 0 ? 1.0 : 1.0 / 512;
          engine->backward(param(engine, "gain").sum() * size, {.scale_wrt_gas = false});
          engine->step();
        }
        EXPECT_NEAR(*engine->get_global_grad_norm(), dtype == std::string("fp32") ? 1.0 + 7.0 / 512 : 1.0,
                    1e-6)
            << dtype << " stage " << stage;
      }
    }
  });
}

// --- the model's tensors by name ---

TEST(ModuleState, RoundTripsAndRenewsTheMasters) {
  for (const bool bf16 : {false, true}) {
    const Json config = autocast_sgd(bf16 ? Json{{"bf16", {{"enabled", true}}}} : Json::object());
    const auto trained = make_engine(config), fresh = make_engine(config);
    train_step(*trained);
    fresh->load_module_state_dict(trained->module_state_dict());
    EXPECT_TRUE(param(fresh, "first.weight").equal(param(trained, "first.weight")));
    train_step(*fresh, 4);
    fresh->load_module_state_dict(trained->module_state_dict());
    EXPECT_TRUE(fresh->optimizer()->state().master(0).equal(
        fresh->optimizer()->store().groups()[0].flat.to(at::kFloat)));
  }
}

TEST(ModuleState, NamesWhatDoesNotFitAndChangesNothing) {
  const auto engine = make_engine(autocast_sgd());
  const at::Tensor before = param(engine, "gain").detach().clone();
  const auto refuses = [&](std::vector<NamedTensor> state, const char* part) {
    EXPECT_THAT([&] { engine->load_module_state_dict(state); },
                ::testing::ThrowsMessage<UsageError>(::testing::HasSubstr(part)));
  };
  auto state = engine->module_state_dict();
  for (auto& tensor : state) tensor.tensor = tensor.tensor + 1;
  auto unknown = state, missing = state, wrong = state;
  unknown.push_back({"extra", at::Tensor(before)});
  refuses(unknown, "no tensor 'extra'");
  missing.pop_back();
  refuses(missing, "is missing");
  wrong.front().tensor = wrong.front().tensor.flatten().slice(0, 0, 0);
  refuses(wrong, "has sizes");
  EXPECT_TRUE(param(engine, "gain").equal(before));
  engine->load_module_state_dict(missing, /*strict=*/false);
  EXPECT_TRUE(param(engine, "gain").equal(before + 1));
  const auto without = engine->module_state_dict(/*exclude_frozen_parameters=*/true);
  for (const auto& tensor : without) EXPECT_NE(tensor.name, "frozen");
}

}  // namespace
}  // namespace deepspeed
