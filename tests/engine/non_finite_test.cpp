// A gradient that is not finite is named: parameter, rank and step.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;

Json config_of(int stage, const Json& patch) {
  Json config = basic({{"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 150}}}});
  config.merge_patch(patch);
  return config;
}

/// An engine in which the gradient of one parameter is not finite on rank 1 while `*broken` says so.
auto breaking_engine(const Json& config, const comm::World& world, const bool* broken) {
  auto engine = make_engine(config, world);
  if (world.rank() == 1) {
    engine->module().named_parameters()["shared.bias"].register_hook([broken](const at::Tensor& gradient) {
      return *broken ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
    });
  }
  return engine;
}

template <class Engine>
std::string warnings_of_step(Engine& engine) {
  ::testing::internal::CaptureStderr();
  train_step(engine);
  return ::testing::internal::GetCapturedStderr();
}

TEST(NonFinite, IsNamedWithItsRankIfStepsAreSkipped) {
  run_ranks(2, [](comm::World& world) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const int stage : {0, 1, 2}) {
        Json patch = {{"log_level", "warning"}};
        if (precision == std::string("bf16")) patch["bf16"] = {{"enabled", true}};
        bool broken = false;
        const auto engine = breaking_engine(config_of(stage, patch), world, &broken);
        EXPECT_EQ(warnings_of_step(*engine), "");
        broken = true;
        const std::string second = warnings_of_step(*engine), third = warnings_of_step(*engine);
        broken = false;
        EXPECT_EQ(warnings_of_step(*engine), "");
        EXPECT_TRUE(engine->was_step_applied());
        EXPECT_EQ(engine->skipped_steps(), 2);
        if (world.rank() != 0) {
          EXPECT_EQ(second + third, "");
          continue;
        }
        const std::string cause = " is skipped: the gradient of 'shared.bias' is not finite on rank 1";
        EXPECT_THAT(second, HasSubstr("step 2" + cause));
        EXPECT_THAT(third, HasSubstr("step 3" + cause));
      }
    }
  });
}

TEST(NonFinite, IsNamedIfTheLossScaleCannotGoLower) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const Json patch = {{"log_level", "error"},
                          {"fp16", {{"enabled", true}, {"initial_scale_power", 1}, {"hysteresis", 1}}}};
      bool broken = true;
      const auto engine = breaking_engine(config_of(stage, patch), world, &broken);
      train_step(*engine);
      EXPECT_EQ(engine->loss_scale(), 1.0);
      EXPECT_THAT([&] { train_step(*engine); },
                  ::testing::ThrowsMessage<UsageError>(::testing::AllOf(
                      HasSubstr("step 2"), HasSubstr("'shared.bias'"), HasSubstr("on rank 1"),
                      HasSubstr("loss scale, 1, is at its minimum"))))
          << "stage " << stage;
    }
  });
}

TEST(NonFinite, IsNamedWhateverTheBucketsAndTheMicroBatchOfTheWindow) {
  run_ranks(2, [](comm::World& world) {
    for (const Json& zero : {Json{{"stage", 1}, {"round_robin_gradients", true}, {"overlap_comm", true}},
                             Json{{"stage", 2}, {"contiguous_gradients", false}},
                             Json{{"stage", 2}, {"reduce_bucket_size", 100000}},
                             Json{{"stage", 1}, {"use_multi_rank_bucket_allreduce", false}}}) {
      const Json patch = {
          {"log_level", "warning"}, {"gradient_accumulation_steps", 3}, {"zero_optimization", zero}};
      bool broken = false;
      const auto engine = breaking_engine(config_of(0, patch), world, &broken);
      std::string text;
      for (int micro = 0; micro < 6; ++micro) {
        broken = micro == 4;
        text += warnings_of_step(*engine);
      }
      if (world.rank() != 0) continue;
      EXPECT_THAT(text, HasSubstr("step 2 is skipped: the gradient of 'shared.bias' is not finite on rank 1"))
          << zero;
    }
  });
}

TEST(NonFinite, SumOfFiniteGradientsIsNamedAsASum) {
  run_ranks(2, [](comm::World& world) {
    // Stage 0 divides after the sum.
    const Json patch = {{"log_level", "warning"}, {"communication_data_type", "fp16"}};
    const auto engine = make_engine(config_of(0, patch), world);
    ::testing::internal::CaptureStderr();
    engine->backward(engine->module().named_parameters()["gain"].sum() * 40000);
    engine->step();
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(engine->was_step_applied());
    if (world.rank() == 0) {
      EXPECT_THAT(text, HasSubstr("the gradient of 'gain' is not finite in the sum over the ranks"));
    }
  });
}

TEST(NonFinite, IsNamedAtOnceInOneProcess) {
  const auto engine = make_engine(config_of(0, {{"log_level", "warning"}}));
  engine->module().named_parameters()["norm.weight"].register_hook(
      [](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::infinity(); });
  EXPECT_THAT(warnings_of_step(*engine),
              HasSubstr("step 1 is skipped: the gradient of 'norm.weight' is not finite on rank 0"));
}

}  // namespace
}  // namespace deepspeed::testing
