#include "deepspeed/engine/engine.h"

#include <limits>

#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using testing::odd_batch;
using testing::OddNet;

using testing::basic;
using testing::make_engine;
using testing::train_step;

TEST(Engine, CountsMicroStepsStepsAndSamples) {
  const auto engine = make_engine(basic({{"gradient_accumulation_steps", 3}}));
  EXPECT_FALSE(engine->is_gradient_accumulation_boundary());
  for (int i = 0; i < 7; ++i) train_step(*engine);
  EXPECT_EQ(engine->micro_steps(), 7);
  EXPECT_EQ(engine->global_steps(), 2);
  EXPECT_EQ(engine->global_samples(), 24);
  EXPECT_FALSE(engine->was_step_applied());
  EXPECT_EQ(engine->get_batch_info(), std::make_tuple(12, 4, 3));
}

TEST(Engine, LetsTheBoundaryBeOverridden) {
  const auto engine = make_engine(basic({{"gradient_accumulation_steps", 4}}));
  engine->set_gradient_accumulation_boundary(true);
  train_step(*engine);
  EXPECT_TRUE(engine->was_step_applied());
  engine->set_gradient_accumulation_boundary(std::nullopt);
  train_step(*engine);
  EXPECT_FALSE(engine->was_step_applied());
}

TEST(Engine, BackwardReturnsTheDividedLoss) {
  const auto engine = make_engine(basic({{"gradient_accumulation_steps", 2}}));
  const auto [inputs, targets] = odd_batch(0, 4);
  const at::Tensor loss = engine->forward(inputs, targets);
  EXPECT_DOUBLE_EQ(engine->backward(loss).item<double>(), static_cast<float>(loss.item<double>() / 2));
}

TEST(Engine, AllowsWritesIntoOutputsOfForward) {
  for (const int stage : {0, 3}) {
    const Json config = basic({{"zero_optimization", {{"stage", stage}}}});
    const auto in_place = make_engine(config), apart = make_engine(config);
    const auto [inputs, targets] = odd_batch(0, 4);
    at::Tensor loss = in_place->forward(inputs, targets);
    loss *= 2;
    loss.div_(4);
    in_place->backward(loss);
    in_place->step();
    apart->backward(apart->forward(inputs, targets) * 0.5);
    apart->step();
    const auto weight_of = [](Engine& engine, const OddNet& net) {
      return safe_get_full_fp32_param(engine, net.named_parameters()["shared.weight"]);
    };
    EXPECT_TRUE(at::equal(weight_of(*in_place, in_place->module()), weight_of(*apart, apart->module())));
  }
}

TEST(Engine, RefusesStepWithoutBackwardAndBackwardWithoutScalar) {
  const auto engine = make_engine(basic());
  EXPECT_ERROR(UsageError, engine->step(), "step() at an accumulation boundary without any backward()",
               "call backward(loss) of this engine before each step()");
  const auto [inputs, targets] = odd_batch(0, 4);
  EXPECT_ERROR(UsageError, engine->backward(inputs), "backward() takes a scalar loss that needs a gradient",
               "28 elements, requires_grad false");
  EXPECT_ERROR(UsageError, engine->backward(at::Tensor()), "backward() takes a scalar loss",
               "an undefined tensor");
}

TEST(Engine, WarnsOnceIfBackwardReachesNoParameter) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto engine =
        make_engine(basic({{"zero_optimization", {{"stage", stage}}}, {"log_level", "warning"}}));
    const at::Tensor elsewhere = at::ones({3}).requires_grad_();
    for (int step = 0; step < 3; ++step) {
      ::testing::internal::CaptureStderr();
      if (step == 0) {
        train_step(*engine);
      } else {
        engine->backward(elsewhere.sum());
        engine->step();
      }
      const std::string text = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(text.find("gave no parameter of the engine a gradient") != std::string::npos, step == 1)
          << "stage " << stage << " step " << step << ": " << text;
    }
    EXPECT_EQ(engine->global_steps(), 3);
  }
}

TEST(Engine, EvaluatesWithoutOptimizerAndSaysWhatTrainingNeeds) {
  const auto engine = make_engine({{"train_batch_size", 4}});
  const auto [inputs, targets] = odd_batch(0, 4);
  const at::Tensor loss = engine->forward(inputs, targets);
  EXPECT_ERROR(UsageError, engine->backward(loss), "optimizer");
  EXPECT_ERROR(ConfigError, make_engine({{"train_batch_size", 4}, {"zero_optimization", {{"stage", 1}}}}),
               "zero_optimization.stage 1 needs an optimizer", "or pass one to initialize()");
}

TEST(Engine, SetTrainBatchSizeChangesTheAccumulation) {
  const auto engine = make_engine(basic());
  engine->set_train_batch_size(12);
  EXPECT_EQ(engine->config().gradient_accumulation_steps, 3);
  EXPECT_ERROR(UsageError, engine->set_train_batch_size(13),
               "set_train_batch_size(13): expected a positive multiple of micro batch 4");
  EXPECT_ERROR(UsageError, engine->set_train_batch_size(0),
               "set_train_batch_size(0): expected a positive multiple");
}

// DeepSpeed scales the rest of the window otherwise, and its boundary moves.
TEST(Engine, SetTrainBatchSizeWithinAWindowActsOnTheNextOne) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool is_direct : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "stage " << stage << " direct " << is_direct);
      const Json config =
          basic({{"gradient_accumulation_steps", 2}, {"zero_optimization", {{"stage", stage}}}});
      const auto expected = make_engine(config), engine = make_engine(config);
      int64_t micro = 0;
      const auto run = [&](auto& trained, int window, int changes_after, int64_t batch) {
        for (int i = 0; i < window; ++i) {
          EXPECT_EQ(trained.is_gradient_accumulation_boundary(), i + 1 == window);
          const auto [inputs, targets] = odd_batch(4 * (micro + i), 4);
          const at::Tensor loss = trained.forward(inputs, targets);
          if (is_direct) {
            loss.backward();
          } else {
            trained.backward(loss);
          }
          if (i + 1 == changes_after) trained.set_train_batch_size(batch);
          trained.step();
        }
      };
      run(*expected, 2, 0, 0);
      run(*engine, 2, 1, 12);
      EXPECT_EQ(engine->get_batch_info(), std::make_tuple(12, 4, 3));
      EXPECT_EQ(engine->global_samples(), 8);
      micro = 2;
      expected->set_train_batch_size(12);
      run(*expected, 3, 0, 0);
      run(*engine, 3, 2, 4);
      EXPECT_EQ(engine->global_samples(), 20);
      micro = 5;
      expected->set_train_batch_size(4);
      run(*expected, 1, 0, 0);
      run(*engine, 1, 0, 0);
      EXPECT_EQ(engine->global_samples(), 24);
      for (const auto& item : expected->module().named_parameters()) {
        if (!item.value().requires_grad()) continue;
        EXPECT_TRUE(safe_get_full_fp32_param(*engine, engine->module().named_parameters()[item.key()])
                        .equal(safe_get_full_fp32_param(*expected, item.value())))
            << item.key();
      }
    }
  }
}

TEST(Engine, LearningRateFollowsTheScheduleAndSetLr) {
  const auto engine = make_engine(
      basic({{"scheduler",
              {{"type", "WarmupLR"},
               {"params", {{"warmup_max_lr", 0.1}, {"warmup_num_steps", 4}, {"warmup_type", "linear"}}}}}}));
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i) {
    train_step(*engine);
    rates.push_back(engine->get_lr()[0]);
  }
  EXPECT_THAT(rates, ::testing::Pointwise(::testing::DoubleNear(1e-12), {0.0, 0.025, 0.05, 0.075}));
  engine->set_lr(0.5);
  EXPECT_EQ(engine->get_lr()[0], 0.5);
  EXPECT_EQ(engine->get_mom()[0], std::make_pair(0.9, 0.999));
}

TEST(Engine, KeepsTheModelsTensorsAndFreesFrozenOnesFromTraining) {
  auto model = std::make_shared<OddNet>();
  const at::Tensor weight = model->named_parameters()["first.weight"];
  const at::Tensor frozen = model->named_parameters()["frozen"].clone();
  const at::Tensor before = weight.detach().clone();
  auto [engine, optimizer, loader, scheduler] =
      initialize(model, {.config = basic({{"zero_optimization", {{"stage", 2}}}})});
  train_step(*engine);
  EXPECT_TRUE(model->named_parameters()["first.weight"].is_same(weight));
  EXPECT_FALSE(weight.equal(before));
  EXPECT_TRUE(model->named_parameters()["frozen"].equal(frozen));
}

TEST(Engine, SkipsAStepWhoseGradientsAreNotFinite) {
  for (const char* precision : {"fp32", "fp16", "bf16"}) {
    Json config = basic();
    if (std::string(precision) != "fp32") config[precision] = {{"enabled", true}};
    const auto engine = make_engine(config);
    const auto weights = engine->module().named_parameters()["last.weight"].detach().clone();
    const auto [inputs, targets] = odd_batch(0, 4);
    const auto type = weights.scalar_type();
    engine->backward(engine->forward(inputs.to(type), targets.mul(std::numeric_limits<double>::infinity())));
    engine->step();
    EXPECT_FALSE(engine->was_step_applied()) << precision;
    EXPECT_EQ(engine->skipped_steps(), 1) << precision;
    EXPECT_EQ(engine->global_steps(), 1) << precision;
    EXPECT_TRUE(engine->module().named_parameters()["last.weight"].equal(weights)) << precision;
  }
}

TEST(Engine, Fp16UnscalesWhateverTheScale) {
  std::vector<at::Tensor> results;
  for (const int scale : {1, 1024}) {
    const auto engine = make_engine(basic({{"fp16", {{"enabled", true}, {"loss_scale", scale}}},
                                           {"gradient_clipping", 0.0},
                                           {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}}}));
    train_step(*engine);
    EXPECT_EQ(engine->loss_scale(), scale);
    results.push_back(engine->module().named_parameters()["last.bias"].detach().to(at::kFloat));
  }
  EXPECT_TRUE(results[0].allclose(results[1], 1e-2, 1e-3));
}

TEST(Engine, TakesATorchOptimizer) {
  auto model = std::make_shared<OddNet>();
  auto reference = std::make_shared<OddNet>();
  auto sgd =
      std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Json config = {{"train_batch_size", 4}, {"gradient_clipping", 0.0}};
  auto [engine, optimizer, loader, scheduler] = initialize(model, {.config = config, .optimizer = sgd});
  torch::optim::SGD plain(reference->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    train_step(*engine, 4 * step);
    const auto [inputs, targets] = odd_batch(4 * step, 4);
    plain.zero_grad();
    reference->forward(inputs, targets).backward();
    plain.step();
  }
  for (const auto& entry : reference->named_parameters()) {
    EXPECT_TRUE(model->named_parameters()[entry.key()].allclose(entry.value(), 1e-6, 1e-7)) << entry.key();
  }
}

TEST(Engine, KeepsHyperparametersOfEachGroup) {
  auto model = std::make_shared<OddNet>();
  auto named = model->named_parameters();
  auto [engine, optimizer, loader, scheduler] = initialize(
      model, {.config = basic(),
              .model_parameters = {{{named["first.weight"], named["first.bias"]}, {{"lr", 0.0}}},
                                   {{named["last.weight"], named["frozen"]}, {{"weight_decay", 0.5}}}}});
  const at::Tensor first = named["first.weight"].detach().clone(),
                   last = named["last.weight"].detach().clone();
  train_step(*engine);
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{0.0, 0.01}));
  EXPECT_TRUE(named["first.weight"].equal(first));
  EXPECT_FALSE(named["last.weight"].equal(last));
  EXPECT_ERROR(UsageError,
               initialize(std::make_shared<OddNet>(),
                          {.config = basic(), .model_parameters = {{{torch::ones({2})}, Json::object()}}}),
               "parameter 0 of parameter group 0 is not a parameter of the model");
}

TEST(Engine, TrainsIndependentlyOfAnotherEngine) {
  const auto alone = make_engine(basic({{"zero_optimization", {{"stage", 1}}}}));
  const auto first = make_engine(basic({{"zero_optimization", {{"stage", 1}}}}));
  const auto second = make_engine(basic({{"zero_optimization", {{"stage", 2}}}}));
  for (int step = 0; step < 3; ++step) {
    const double expected = train_step(*alone, 4 * step);
    EXPECT_EQ(train_step(*first, 4 * step), expected);
    EXPECT_EQ(train_step(*second, 4 * step), expected);
  }
}

TEST(Engine, IsUnchangedByEvaluationBetweenSteps) {
  const auto plain = make_engine(basic());
  const auto with_evaluation = make_engine(basic());
  for (int step = 0; step < 3; ++step) {
    const double expected = train_step(*plain, 4 * step);
    EXPECT_EQ(train_step(*with_evaluation, 4 * step), expected);
    const torch::NoGradGuard no_grad;
    with_evaluation->eval();
    const auto [inputs, targets] = odd_batch(100, 4);
    EXPECT_FALSE(with_evaluation->forward(inputs, targets).requires_grad());
    with_evaluation->train();
  }
}

TEST(Engine, StageZeroShowsAveragedGradientsUntilTheStep) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto engine = make_engine(basic(), world);
    const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
    engine->backward(engine->forward(inputs, targets));
    const at::Tensor gradient = engine->module().named_parameters()["last.bias"].grad().clone();
    OddNet reference;
    const auto [all_inputs, all_targets] = odd_batch(0, 8);
    reference.forward(all_inputs, all_targets).backward();
    const at::Tensor expected = reference.named_parameters()["last.bias"].grad();
    EXPECT_TRUE(gradient.allclose(expected, 1e-5, 1e-6)) << gradient << "\n" << expected;
    engine->step();
    EXPECT_FALSE(engine->module().named_parameters()["last.bias"].grad().defined());
  });
}

}  // namespace
}  // namespace deepspeed
