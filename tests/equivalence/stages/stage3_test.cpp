// Stage 3 trains as stage 0 does, on one to four ranks, through the engine.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/equivalence/stages/stage3_config.h"
#include "tests/support/run_ranks.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

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

TEST(Stage3Options, AreBitEqualWithOtherOptimizers) {
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

}  // namespace
}  // namespace deepspeed::testing
