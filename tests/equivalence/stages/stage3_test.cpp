// Stage 3 trains as stage 0 does, on one to four ranks, through the engine.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_gpt.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// At stage 3 the larger parameters of OddNet are partitioned, the others stay whole from their first use on.
Json at_stage(int stage, Json patch = Json::object()) {
  Json config = {{"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 200}}}};
  if (stage == 3) config["zero_optimization"]["stage3_param_persistence_threshold"] = 13;
  config.merge_patch(patch);
  return config;
}

Json zero_options(const Json& options) { return {{"zero_optimization", options}}; }

class Stage3 : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stage3, ::testing::Values(1, 2, 3, 4));

TEST_P(Stage3, IsBitEqualToStageZeroInFp32WithoutClipping) {
  const TrainingResult reference = run_training({.world_size = GetParam(), .config = at_stage(0)});
  ASSERT_FALSE(reference.weights.empty());
  for (const Json& options : {Json{{"overlap_comm", false}}, Json{{"overlap_comm", true}}}) {
    const TrainingResult result =
        run_training({.world_size = GetParam(), .config = at_stage(3, zero_options(options))});
    EXPECT_EQ(result.weights, reference.weights) << options;
    EXPECT_EQ(result.losses, reference.losses) << options;
  }
}

TEST_P(Stage3, IsBitEqualInSixteenBits) {
  for (const char* precision : {"bf16", "fp16"}) {
    Json patch = {{precision, {{"enabled", true}}}};
    // The first steps overflow and are skipped.
    if (precision == std::string("fp16")) patch["fp16"]["initial_scale_power"] = 20;
    patch["log_level"] = "error";
    // From stage 1 on gradients in fp16 are divided before their sum.
    const int stage = precision == std::string("fp16") ? 2 : 0;
    TrainingSpec spec{.world_size = GetParam(), .steps = 20, .config = at_stage(stage, patch)};
    const TrainingResult reference = run_training(spec);
    ASSERT_FALSE(reference.losses.empty());
    EXPECT_LT(reference.losses.back(), reference.losses.front()) << precision;
    spec.config = at_stage(3, patch);
    const TrainingResult result = run_training(spec);
    EXPECT_EQ(result.weights, reference.weights) << precision;
    EXPECT_EQ(result.losses, reference.losses) << precision;
  }
}

/// A trained and a frozen parameter of no elements; what they are joined with takes its dtype from them too.
class WithNothing : public torch::nn::Module {
 public:
  WithNothing() {
    rows_ = register_parameter("rows", at::arange(6, at::kFloat).view({2, 3}));
    no_rows_ = register_parameter("no_rows", at::zeros({0, 3}));
    frozen_ = register_parameter("frozen", at::zeros({0, 3}), false);
  }
  at::Tensor forward() { return at::cat({rows_, no_rows_, frozen_}).pow(2).sum(); }

 private:
  at::Tensor rows_, no_rows_, frozen_;
};

TEST(Stage3InSixteenBits, CastsParametersOfNoElements) {
  for (const int stage : {0, 3}) {
    Json config = {{"train_micro_batch_size_per_gpu", 2}, {"optimizer", {{"type", "AdamW"}}}};
    config.merge_patch(at_stage(stage, {{"bf16", {{"enabled", true}}}}));
    run_ranks(2, [&](comm::World& world) {
      auto [engine, optimizer, loader, schedule] =
          initialize(std::make_shared<WithNothing>(), {.config = config, .world = world});
      const at::Tensor loss = engine->forward();
      EXPECT_EQ(loss.scalar_type(), at::kBFloat16) << "stage " << stage;
      for (const auto& param : engine->module().named_parameters())
        EXPECT_EQ(param.value().scalar_type(), at::kBFloat16) << "stage " << stage << " " << param.key();
      engine->backward(loss);
      engine->step();
      EXPECT_TRUE(engine->was_step_applied());
    });
  }
}

TEST(Stage3Options, ChangeWhatIsWholeAndNothingElse) {
  const TrainingResult reference = run_training({.world_size = 3, .config = at_stage(0)});
  for (const Json& options : std::vector<Json>{
           {{"stage3_param_persistence_threshold", 0}},
           {{"stage3_param_persistence_threshold", 1000}},
           {{"stage3_param_persistence_threshold", 1000}, {"stage3_model_persistence_threshold", 30}},
           {{"stage3_max_live_parameters", 0}},
           {{"stage3_max_live_parameters", 200}, {"stage3_max_reuse_distance", 0}},
           {{"stage3_prefetch_bucket_size", 0}},
           {{"stage3_prefetch_bucket_size", 150}, {"stage3_max_reuse_distance", 100}},
           {{"sub_group_size", 10}},
           {{"reduce_bucket_size", 1}},
           {{"reduce_scatter", false}},
           {{"contiguous_gradients", false}}}) {
    const TrainingResult result =
        run_training({.world_size = 3, .config = at_stage(3, zero_options(options))});
    EXPECT_EQ(result.weights, reference.weights) << options;
    EXPECT_EQ(result.losses, reference.losses) << options;
  }
}

TEST(Stage3Options, OfOtherOptimizersAreBitEqual) {
  for (const Json& variant : std::vector<Json>{
           {{"optimizer",
             {{"type", "SGD"}, {"params", {{"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", nullptr}}}}},
            {"zero_allow_untested_optimizer", true}},
           {{"optimizer", {{"type", "Adam"}, {"params", {{"adam_w_mode", false}}}}}},
           {{"optimizer", {{"type", "Lion"}, {"params", {{"lr", 0.003}}}}}},
           {{"optimizer", {{"type", "Adagrad"}, {"params", {{"lr", 0.02}}}}}},
           {{"scheduler",
             {{"type", "WarmupLR"}, {"params", {{"warmup_max_lr", 0.02}, {"warmup_num_steps", 4}}}}}}}) {
    const TrainingResult reference = run_training({.world_size = 2, .config = at_stage(0, variant)});
    ASSERT_FALSE(reference.weights.empty());
    EXPECT_EQ(run_training({.world_size = 2, .config = at_stage(3, variant)}).weights, reference.weights)
        << variant;
  }
}

TEST(Stage3Accumulation, IsBitEqualToStageTwo) {
  for (const int world : {1, 2, 3}) {
    TrainingSpec spec{.world_size = world, .accumulation = 3, .config = at_stage(2)};
    const TrainingResult reference = run_training(spec);
    ASSERT_FALSE(reference.weights.empty());
    spec.config = at_stage(3);
    EXPECT_EQ(run_training(spec).weights, reference.weights);
    spec.direct_backward = true;
    EXPECT_EQ(run_training(spec).weights, reference.weights);
  }
}

TEST(Stage3Accumulation, EqualsOneLargerBatch) {
  const TrainingResult whole = run_training({.world_size = 1, .micro_batch = 12, .config = at_stage(3)});
  const TrainingResult parts =
      run_training({.world_size = 1, .micro_batch = 4, .accumulation = 3, .config = at_stage(3)});
  EXPECT_LT(largest_relative_difference(parts.weights, whole.weights, 1e-2), 1e-5);
}

TEST(Stage3Clipping, AgreesWithStageZeroWithinRounding) {
  TrainingSpec spec{.world_size = 3, .config = at_stage(0, {{"gradient_clipping", 0.05}})};
  const TrainingResult reference = run_training(spec);
  ASSERT_FALSE(reference.norms.empty());
  EXPECT_GT(reference.norms.front(), 0.05) << "the norm must be clipped for this test to say anything";
  spec.config = at_stage(3, {{"gradient_clipping", 0.05}});
  const TrainingResult result = run_training(spec);
  EXPECT_LT(largest_relative_difference(result.norms, reference.norms), 1e-6);
  EXPECT_LT(largest_relative_difference(result.weights, reference.weights), 1e-5);
}

TEST(Stage3Autocast, IsBitEqualToStageTwo) {
  for (const char* dtype : {"bf16", "fp16"}) {
    Json patch = {{"torch_autocast", {{"enabled", true}, {"dtype", dtype}}}, {"log_level", "error"}};
    TrainingSpec spec{.world_size = 2, .config = at_stage(2, patch)};
    const TrainingResult reference = run_training(spec);
    ASSERT_FALSE(reference.weights.empty());
    spec.config = at_stage(3, patch);
    const TrainingResult result = run_training(spec);
    EXPECT_EQ(result.weights, reference.weights) << dtype;
    EXPECT_EQ(result.losses, reference.losses) << dtype;
  }
}

// --- a GPT whose head is its embedding ---

constexpr TinyGPTConfig kGpt{.vocabulary = 48, .context = 11, .width = 14, .layers = 2, .heads = 2};

std::shared_ptr<DeepSpeedEngine<TinyGPT>> gpt_engine(int stage, const comm::World& world,
                                                     const Json& patch = Json::object()) {
  auto model = std::make_shared<TinyGPT>(kGpt);
  fill_parameters(*model, 0.1);
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}};
  config.merge_patch(at_stage(stage, patch));
  return initialize(model, {.config = config, .world = world}).engine;
}

template <class Engine>
double gpt_loss(Engine& engine, const FormulaBatch& batch, bool training) {
  const at::Tensor loss = engine.forward(batch.tokens, batch.targets);
  if (training) {
    engine.backward(loss);
    engine.step();
  }
  return loss.template item<double>();
}

void expect_same_weights(torch::nn::Module& sharded, torch::nn::Module& plain) {
  const zero::GatheredParameters gathered(sharded.parameters());
  for (const auto& item : sharded.named_parameters())
    EXPECT_TRUE(item.value().equal(plain.named_parameters()[item.key()])) << item.key();
}

TEST_P(Stage3, TrainsAGptWithEvaluationBetweenStepsBesideAnotherEngine) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const Json& patch : {Json::object(), Json{{"bf16", {{"enabled", true}}}}}) {
      const auto plain = gpt_engine(0, world, patch);
      const auto sharded = gpt_engine(3, world, patch);
      const auto other = gpt_engine(3, world, patch);  // trains at the same time, on other data
      const FormulaData data{world.size(), 2, kGpt.context, kGpt.vocabulary};
      for (int64_t step = 0; step < 4; ++step) {
        const FormulaBatch batch = data.batch(step, world.rank());
        EXPECT_EQ(gpt_loss(*sharded, batch, true), gpt_loss(*plain, batch, true)) << step;
        gpt_loss(*other, data.batch(step + 7, world.rank()), true);
        const c10::NoGradGuard no_grad;
        plain->eval();
        sharded->eval();
        const FormulaBatch held_out = data.batch(100 + step, world.rank());
        EXPECT_EQ(gpt_loss(*sharded, held_out, false), gpt_loss(*plain, held_out, false)) << step;
        plain->train();
        sharded->train();
      }
      expect_same_weights(sharded->module(), plain->module());
    }
  });
}

TEST(Stage3Model, KeepsIdentitySizesAndTying) {
  run_ranks(2, [](comm::World& world) {
    auto model = std::make_shared<OddNet>();
    const auto before = model->named_parameters();
    const auto engine = initialize(model, {.config = at_stage(3, {{"train_micro_batch_size_per_gpu", 4},
                                                                  {"optimizer", {{"type", "AdamW"}}}}),
                                           .world = world})
                            .engine;
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(item.value().is_same(before[item.key()])) << item.key();
      EXPECT_EQ(item.value().sizes(), before[item.key()].sizes());
    }
    EXPECT_EQ(model->named_parameters()["shared.weight"].numel(), 169);
    EXPECT_FALSE(model->named_parameters()["frozen"].requires_grad());
  });
}

TEST(Stage3Model, UsedOutsideOfTheEngineIsAnErrorThatNamesTheParameter) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = gpt_engine(3, world);
    const FormulaBatch batch = FormulaData{world.size(), 2, 11, 48}.batch(0, world.rank());
    EXPECT_THAT(error_of<UsageError>([&] { engine->module().forward(batch.tokens, batch.targets); }),
                AllOf(HasSubstr("'wpe.weight'"), HasSubstr("outside of an access window"),
                      HasSubstr("zero::ParameterAccess")));
    gpt_loss(*engine, batch, true);
    EXPECT_ERROR(UsageError, engine->module().forward(batch.tokens, batch.targets),
                 "parameter 'wpe.weight' is partitioned", "open a zero::ParameterAccess");
    const zero::ParameterAccess access(engine->module().parameters());
    EXPECT_NO_THROW(engine->module().forward(batch.tokens, batch.targets));
  });
}

TEST(Stage3Model, IsUsableAfterABackwardThatFailed) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = gpt_engine(3, world);
    const FormulaBatch batch = FormulaData{world.size(), 2, 11, 48}.batch(0, world.rank());
    at::Tensor weight = engine->module().named_parameters()["wpe.weight"];
    const unsigned hook =
        weight.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("spoilt"); });
    EXPECT_ERROR(std::runtime_error, engine->forward(batch.tokens, batch.targets).backward(), "spoilt");
    weight.remove_hook(hook);
    EXPECT_ERROR(UsageError, engine->module().forward(batch.tokens, batch.targets),
                 "parameter 'wpe.weight' is partitioned",
                 "open a zero::ParameterAccess");  // no window is left
    engine->zero_grad();
    gpt_loss(*engine, batch, true);
    EXPECT_TRUE(engine->was_step_applied());
  });
}

TEST(Stage3Model, IsEvaluatedAfterDestroyAndReleasesWhatItKeeps) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = gpt_engine(3, world, zero_options({{"stage3_param_persistence_threshold", 100000}}));
    const FormulaBatch batch = FormulaData{world.size(), 2, 11, 48}.batch(0, world.rank());
    const double loss = gpt_loss(*engine, batch, false);
    EXPECT_EQ(gpt_loss(*engine, batch, false), loss);
    engine->empty_partition_cache();
    EXPECT_EQ(gpt_loss(*engine, batch, false), loss);
    engine->destroy();
    const c10::NoGradGuard no_grad;
    EXPECT_EQ(gpt_loss(*engine, batch, false), loss);
  });
}

TEST(Stage3Edit, UnderGatheredParametersSurvivesTheNextStepInBothCopies) {
  run_ranks(2, [](comm::World& world) {
    for (const char* precision : {"bf16", "fp32"}) {
      Json patch = {{"optimizer", {{"params", {{"lr", 1e-3}}}}}};
      if (precision == std::string("bf16")) patch["bf16"] = {{"enabled", true}};
      const auto engine = gpt_engine(3, world, patch);
      const FormulaData data{world.size(), 2, 11, 48};
      gpt_loss(*engine, data.batch(0, world.rank()), true);
      const at::Tensor weight = engine->module().named_parameters()["h.0.mlp.c_fc.weight"];
      const at::Tensor values =
          at::arange(weight.numel(), at::kFloat).view(weight.sizes()).to(weight.scalar_type());
      {
        const zero::GatheredParameters gathered({weight}, /*modifier_rank=*/0);
        const c10::NoGradGuard no_grad;
        if (world.rank() == 0) weight.copy_(values);
      }
      EXPECT_TRUE(safe_get_full_fp32_param(*engine, weight).equal(values.to(at::kFloat))) << precision;
      gpt_loss(*engine, data.batch(1, world.rank()), true);
      const at::Tensor master = safe_get_full_fp32_param(*engine, weight);
      EXPECT_TRUE(master.allclose(values.to(at::kFloat), 1e-3, 1e-2)) << precision;
      EXPECT_FALSE(master.equal(values.to(at::kFloat))) << precision;
      const zero::GatheredParameters gathered({weight});
      EXPECT_TRUE(weight.equal(master.to(weight.scalar_type()))) << precision;
    }
  });
}

TEST(Stage3State, GoesInAndOutByName) {
  run_ranks(3, [](comm::World& world) {
    const auto source = gpt_engine(3, world, {{"bf16", {{"enabled", true}}}});
    const auto target = gpt_engine(3, world, {{"bf16", {{"enabled", true}}}});
    const FormulaData data{world.size(), 2, 11, 48};
    gpt_loss(*source, data.batch(0, world.rank()), true);
    std::vector<NamedTensor> state;
    {
      const zero::GatheredParameters gathered(source->module().parameters());
      for (const auto& item : source->module_state_dict()) state.push_back({item.name, item.tensor.clone()});
    }
    target->load_module_state_dict(state);
    {
      const zero::GatheredParameters gathered(source->module().parameters());
      expect_same_weights(target->module(), source->module());
    }
    const at::Tensor weight = target->module().named_parameters()["wpe.weight"];
    const at::Tensor master = safe_get_full_fp32_param(*target, weight);
    EXPECT_TRUE(master.equal(master.to(at::kBFloat16).to(at::kFloat)));
    const zero::GatheredParameters gathered({weight});
    EXPECT_TRUE(weight.equal(master.to(at::kBFloat16)));
  });
}

// --- bytes ---

struct WideMlp : torch::nn::Module {
  static constexpr int64_t kWidth = 128, kLayers = 8;

  WideMlp() {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i),
                                       torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth))));
    }
    fill_parameters(*this, 0.1);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = at::gelu(layer->forward(x));
    return x.to(at::kFloat).pow(2).mean();
  }
  std::vector<torch::nn::Linear> layers;
};

TEST(Stage3Bytes, NoSecondCopyOfTheModelLivesThroughForwardAndBackward) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& patch : {Json{{"torch_autocast", {{"enabled", true}, {"dtype", "bf16"}}}},
                              Json{{"bf16", {{"enabled", true}}}}}) {
      const bool is_autocast = patch.contains("torch_autocast");
      const AllocationCounter counter;
      const int64_t layer = WideMlp::kWidth * WideMlp::kWidth;
      const int64_t copy_bytes = 2 * WideMlp::kLayers * layer;  // of the model in 16 bits
      Json config = {{"train_micro_batch_size_per_gpu", 2}, {"optimizer", {{"type", "AdamW"}}}};
      config.merge_patch(at_stage(3, patch));
      config["zero_optimization"].update({{"reduce_bucket_size", layer},
                                          {"overlap_comm", false},
                                          {"stage3_param_persistence_threshold", 0},
                                          {"stage3_prefetch_bucket_size", layer},
                                          {"stage3_max_live_parameters", 2 * layer}});
      const auto engine = initialize(std::make_shared<WideMlp>(), {.config = config, .world = world}).engine;
      at::Tensor input = at::arange(2 * WideMlp::kWidth, at::kFloat).sin_().view({2, -1});
      if (!is_autocast) input = input.to(at::kBFloat16);
      int64_t between = 0, at_rest = 0, peak = 0;
      for (int step = 0; step < 3; ++step) {
        at_rest = counter.live_bytes();
        const at::Tensor loss = engine->forward(input);
        between = counter.live_bytes();
        engine->backward(loss);
        peak = counter.peak_bytes();
        engine->step();
      }
      EXPECT_LT(between - at_rest, copy_bytes / 4) << patch;
      // Half of the model in its own precision, masters, moments and gradients are held; a few layers are
      // whole at once.
      const int64_t held = engine->memory().total();
      EXPECT_LT(peak, held + copy_bytes / 2 + 16 * layer) << patch;
      EXPECT_LE(at_rest, held + 8 * layer + 100'000) << patch;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
