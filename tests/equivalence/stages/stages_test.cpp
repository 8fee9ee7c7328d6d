// Stages 0, 1 and 2, world sizes and accumulation give the same training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"

#include "tests/support/odd_net.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training_run.h"

namespace deepspeed::testing {
namespace {

Json zero(int stage, bool overlap = false, int64_t bucket = 200) {
  return {
      {"zero_optimization", {{"stage", stage}, {"overlap_comm", overlap}, {"reduce_bucket_size", bucket}}}};
}

Json merged(Json base, const Json& patch) {
  base.merge_patch(patch);
  return base;
}

class Worlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Worlds, ::testing::Values(1, 2, 3, 4));

TEST_P(Worlds, StagesAreBitEqualInFp32WithoutClipping) {
  const TrainingResult reference = run_training({.world_size = GetParam(), .config = zero(0)});
  ASSERT_FALSE(reference.weights.empty());
  for (const int stage : {0, 1, 2}) {
    for (const bool overlap : {false, true}) {
      const TrainingResult result = run_training({.world_size = GetParam(), .config = zero(stage, overlap)});
      EXPECT_EQ(result.weights, reference.weights) << "stage " << stage << " overlap " << overlap;
      EXPECT_EQ(result.losses, reference.losses) << "stage " << stage << " overlap " << overlap;
    }
  }
}

TEST(Stages, AreBitEqualWithOtherOptimizersAndLayouts) {
  const std::vector<Json> variants = {
      {{"optimizer",
        {{"type", "SGD"}, {"params", {{"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", nullptr}}}}},
       {"zero_allow_untested_optimizer", true}},
      {{"optimizer", {{"type", "Adam"}, {"params", {{"adam_w_mode", false}}}}}},
      {{"optimizer", {{"type", "Lion"}, {"params", {{"lr", 0.003}}}}}},
      {{"optimizer",
        {{"type", "RMSprop"}, {"params", {{"lr", 0.002}, {"momentum", 0.9}, {"centered", true}}}}},
       {"zero_allow_untested_optimizer", true}},
      {{"optimizer", {{"type", "Adagrad"}, {"params", {{"lr", 0.02}}}}}},
      {{"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_max_lr", 0.02}, {"warmup_num_steps", 4}}}}}},
      {{"gradient_accumulation_steps", 2}},
  };
  for (const Json& variant : variants) {
    TrainingSpec spec{.world_size = 2, .accumulation = variant.value("gradient_accumulation_steps", 1)};
    spec.config = merged(zero(0), variant);
    const TrainingResult reference = run_training(spec);
    ASSERT_FALSE(reference.weights.empty());
    spec.config = merged(zero(1), variant);
    EXPECT_EQ(run_training(spec).weights, reference.weights) << variant;
    // With accumulation, stage 2 sums over ranks before it sums over micro steps.
    spec.config = merged(zero(2), variant);
    const TrainingResult two = run_training(spec);
    if (spec.accumulation == 1) {
      EXPECT_EQ(two.weights, reference.weights) << variant;
    } else {
      EXPECT_LT(largest_relative_difference(two.weights, reference.weights), 1e-4) << variant;
    }
  }
}

// These need whole parameters, of which a partition may have a part: 13 x 13 lies on three ranks.
Json with_optimizer(const char* type, Json config) {
  config["optimizer"] = {{"type", type}, {"params", {{"lr", 0.01}, {"weight_decay", 0.01}}}};
  config["zero_allow_untested_optimizer"] = true;
  return config;
}

std::vector<Json> homes_of_states(const std::string& folder) {
  std::vector<Json> configs;
  for (const int stage : {1, 2, 3}) {
    configs.push_back(zero(stage));
    for (const char* device : {"cpu", "nvme"}) {
      Json config = zero(stage);
      config["zero_optimization"]["offload_optimizer"] = {{"device", device}, {"nvme_path", folder}};
      config["zero_optimization"]["sub_group_size"] = 100;
      configs.push_back(config);
      if (stage < 3) continue;
      config["zero_optimization"]["offload_optimizer"]["ratio"] = 0.5;
      configs.push_back(config);
    }
  }
  return configs;
}

TEST(Stages, LambAndMuonTrainEquallyAtEachOfThem) {
  const TemporaryFolder folder;
  for (const char* type : {"Lamb", "Muon"}) {
    for (const int world : {2, 3, 4}) {
      TrainingSpec spec{.world_size = world, .config = with_optimizer(type, zero(0))};
      const TrainingResult reference = run_training(spec);
      ASSERT_FALSE(reference.weights.empty());
      for (const Json& config : homes_of_states(folder.string())) {
        spec.config = with_optimizer(type, config);
        const TrainingResult result = run_training(spec);
        if (type == std::string("Muon")) {
          EXPECT_EQ(result.weights, reference.weights) << config << " world " << world;
        } else {  // the norm of a parameter is added up in another order
          EXPECT_LT(largest_relative_difference(result.weights, reference.weights, 1e-3), 1e-5)
              << config << " world " << world;
        }
      }
    }
  }
}

TEST(Stages, LambAndMuonDoNotDependOnTheNumberOfRanks) {
  for (const char* type : {"Lamb", "Muon"}) {
    for (const int stage : {0, 1, 2, 3}) {
      const Json config = with_optimizer(type, zero(stage));
      const TrainingResult one = run_training({.world_size = 1, .micro_batch = 12, .config = config});
      ASSERT_FALSE(one.weights.empty());
      for (const int world : {2, 3}) {
        const TrainingResult many =
            run_training({.world_size = world, .micro_batch = 12 / world, .config = config});
        // The iteration of Muon enlarges the rounding of small singular values.
        EXPECT_LT(largest_relative_difference(many.weights, one.weights, 1e-2), 5e-4)
            << type << " stage " << stage << " world " << world;
      }
    }
  }
}

TEST(Stages, LambAndMuonAgreeInBf16WithClippingAndRoundRobin) {
  for (const char* type : {"Lamb", "Muon"}) {
    const auto config = [&](int stage, bool round_robin) {
      Json result = with_optimizer(type, zero(stage));
      result["bf16"] = {{"enabled", true}};
      result["gradient_clipping"] = 0.05;
      result["zero_optimization"]["round_robin_gradients"] = round_robin;
      return result;
    };
    const TrainingResult reference = run_training({.world_size = 3, .config = config(0, false)});
    ASSERT_FALSE(reference.weights.empty());
    for (const int stage : {1, 2, 3}) {
      for (const bool round_robin : {false, true}) {
        const TrainingResult result = run_training({.world_size = 3, .config = config(stage, round_robin)});
        EXPECT_LT(largest_relative_difference(result.weights, reference.weights, 1e-2), 2e-2)
            << type << " stage " << stage;
      }
    }
  }
}

TEST(Stages, AgreeWithClippingWithinRounding) {
  TrainingSpec spec{.world_size = 3, .config = merged(zero(0), {{"gradient_clipping", 0.05}})};
  const TrainingResult reference = run_training(spec);
  ASSERT_FALSE(reference.norms.empty());
  EXPECT_GT(reference.norms.front(), 0.05) << "the norm must be clipped for this test to say anything";
  for (const int stage : {1, 2}) {
    spec.config = merged(zero(stage), {{"gradient_clipping", 0.05}});
    const TrainingResult result = run_training(spec);
    EXPECT_LT(largest_relative_difference(result.norms, reference.norms), 1e-6);
    EXPECT_LT(largest_relative_difference(result.weights, reference.weights), 1e-5) << "stage " << stage;
  }
}

TEST(Stages, RoundRobinOnlyMovesParameters) {
  const TrainingResult plain = run_training({.world_size = 2, .config = zero(1)});
  Json config = zero(1);
  config["zero_optimization"]["round_robin_gradients"] = true;
  EXPECT_EQ(run_training({.world_size = 2, .config = config}).weights, plain.weights);
}

// Where the sums of a batch are cut differently they round differently: weights agree to 1e-5 of themselves,
// those below 1e-2, which fp32 sums of order 1 leave uncertain by more than that, to 1e-7.
constexpr double kSmallWeight = 1e-2;

TEST(Accumulation, EqualsOneLargerBatch) {
  for (const int stage : {0, 1, 2}) {
    const TrainingResult whole = run_training({.world_size = 1, .micro_batch = 12, .config = zero(stage)});
    const TrainingResult parts =
        run_training({.world_size = 1, .micro_batch = 4, .accumulation = 3, .config = zero(stage)});
    EXPECT_LT(largest_relative_difference(parts.weights, whole.weights, kSmallWeight), 1e-5)
        << "stage " << stage;
  }
}

TEST(WorldSize, DoesNotChangeTheTraining) {
  for (const int stage : {0, 1, 2}) {
    const TrainingResult one = run_training({.world_size = 1, .micro_batch = 12, .config = zero(stage)});
    for (const int world : {2, 3, 4}) {
      const TrainingResult many =
          run_training({.world_size = world, .micro_batch = 12 / world, .config = zero(stage)});
      EXPECT_LT(largest_relative_difference(many.weights, one.weights, kSmallWeight), 1e-5)
          << "stage " << stage << " world " << world;
    }
  }
}

TEST(DirectBackward, EqualsTheEnginesBackward) {
  for (const int stage : {0, 1, 2}) {
    TrainingSpec spec{
        .world_size = 2, .accumulation = 2, .config = merged(zero(stage), {{"gradient_clipping", 1.0}})};
    const TrainingResult managed = run_training(spec);
    spec.direct_backward = true;
    EXPECT_EQ(run_training(spec).weights, managed.weights) << "stage " << stage;
  }
}

TEST(SixteenBit, StagesAgreeAndLearn) {
  for (const char* precision : {"bf16", "fp16"}) {
    TrainingSpec spec{.world_size = 2, .steps = 10};
    spec.config = merged(zero(0), {{precision, {{"enabled", true}}}});
    if (std::string(precision) == "fp16") spec.config["fp16"]["initial_scale_power"] = 8;
    const Json patch = spec.config;
    const TrainingResult reference = run_training(spec);
    ASSERT_FALSE(reference.losses.empty());
    EXPECT_LT(reference.losses.back(), reference.losses.front()) << precision;
    for (const int stage : {1, 2}) {
      spec.config = merged(patch, zero(stage));
      EXPECT_EQ(run_training(spec).weights, reference.weights) << precision << " stage " << stage;
    }
  }
}

}  // namespace
}  // namespace deepspeed::testing
