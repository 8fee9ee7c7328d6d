// What skipped steps leave: the norm, and the loss scale at its minimum.
#include <limits>

#include <gtest/gtest.h>

#include "deepspeed/precision/loss_scaler.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

using testing::make_engine;
using testing::train_step;

template <class Engine>
void overflowing_step(Engine& engine) {
  auto [inputs, targets] = testing::odd_batch(0, 4);
  targets.fill_(std::numeric_limits<float>::infinity());
  engine.backward(engine.forward(inputs.to(at::kHalf), targets));
  engine.step();
}

Json at_minimum(int stage) {
  return testing::basic({{"zero_optimization", {{"stage", stage}}},
                         {"fp16", {{"enabled", true}, {"initial_scale_power", 0}, {"hysteresis", 1}}}});
}

template <class Engine>
precision::DynamicLossScaler& scaler_of(Engine& engine) {
  return dynamic_cast<precision::DynamicLossScaler&>(engine.optimizer()->loss_scaler());
}

TEST(GlobalGradNorm, StaysThatOfTheLastAppliedStepIfOneIsSkipped) {
  for (const int stage : {0, 1, 2, 3}) {
    Json config = at_minimum(stage);
    config["fp16"]["initial_scale_power"] = 4;
    const auto engine = make_engine(config);
    overflowing_step(*engine);
    EXPECT_EQ(engine->get_global_grad_norm(), std::nullopt) << stage;
    train_step(*engine);
    const auto norm = engine->get_global_grad_norm();
    ASSERT_TRUE(norm.has_value());
    EXPECT_GT(*norm, 0.0);
    overflowing_step(*engine);
    EXPECT_FALSE(engine->was_step_applied());
    EXPECT_EQ(engine->get_global_grad_norm(), norm) << stage;
  }
}

TEST(LossScaleAtItsMinimum, IsAnErrorOnlyIfTheScalerSaysSo) {
  const testing::TemporaryFolder folder;
  for (const int stage : {1, 2, 3}) {
    const auto engine = make_engine(at_minimum(stage));
    EXPECT_ERROR(UsageError, overflowing_step(*engine), "the gradient of 'last.bias' is not finite on rank 0",
                 "the loss scale, 1, is at its minimum", "train with bf16")
        << stage;
    scaler_of(*engine).set_raise_error_at_min_scale(false);
    for (int i = 0; i < 3; ++i) overflowing_step(*engine);
    EXPECT_EQ(engine->loss_scale(), 1.0);
    EXPECT_EQ(engine->skipped_steps(), 3);
    train_step(*engine);
    const auto directory = folder.path() / std::to_string(stage);
    engine->save_checkpoint(directory);
    const auto resumed = make_engine(at_minimum(stage));
    resumed->load_checkpoint(directory);
    EXPECT_FALSE(scaler_of(*resumed).options().raise_error_at_min_scale);
    overflowing_step(*resumed);
    EXPECT_EQ(resumed->skipped_steps(), 4);
  }
}

}  // namespace
}  // namespace deepspeed
