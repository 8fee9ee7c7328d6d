// Which steps look for gradients that are not finite, and which wait for the norm.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "deepspeed/zero/step_result.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

Json checked(int stage, double clipping, const Json& patch) {
  Json config = basic({{"log_level", "error"},
                       {"gradient_clipping", clipping},
                       {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 150}}}});
  config.merge_patch(patch);
  return config;
}

Json bf16_with_check(bool check) { return {{"bf16", {{"enabled", true}, {"check_grad_overflow", check}}}}; }

/// One step in which the gradient of last.bias alone is not finite, on rank 1.
auto after_a_bad_step(const Json& config, const comm::World& world) {
  auto engine = make_engine(config, world);
  if (world.rank() == 1) {
    engine->module().named_parameters()["last.bias"].register_hook(
        [](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::infinity(); });
  }
  train_step(*engine);
  return engine;
}

template <class Engine>
bool is_finite(Engine& engine, const char* name) {
  return engine->module().named_parameters()[name].isfinite().all().template item<bool>();
}

TEST(OverflowCheck, FollowsTheConfigInBf16) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      for (const double clipping : {0.0, 1.0}) {
        SCOPED_TRACE(message("stage ", stage, " clipping ", clipping));
        const auto skipping = after_a_bad_step(checked(stage, clipping, bf16_with_check(true)), world);
        EXPECT_FALSE(skipping->was_step_applied());
        EXPECT_EQ(skipping->skipped_steps(), 1);
        EXPECT_TRUE(is_finite(skipping, "last.bias"));
        EXPECT_FALSE(skipping->get_global_grad_norm());

        const auto applying = after_a_bad_step(checked(stage, clipping, bf16_with_check(false)), world);
        EXPECT_TRUE(applying->was_step_applied());
        EXPECT_EQ(applying->skipped_steps(), 0);
        EXPECT_FALSE(is_finite(applying, "last.bias"));
        EXPECT_TRUE(is_finite(applying, "first.weight")) << "the others are neither clipped nor touched";
        EXPECT_FALSE(std::isfinite(applying->get_global_grad_norm().value_or(0.0)));
      }
    }
  });
}

TEST(OverflowCheck, GoesWithClippingInFp32) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(message("stage ", stage));
      const auto clipped = after_a_bad_step(checked(stage, 1.0, Json::object()), world);
      EXPECT_FALSE(clipped->was_step_applied());
      EXPECT_TRUE(is_finite(clipped, "last.bias"));
      const auto unclipped = after_a_bad_step(checked(stage, 0.0, Json::object()), world);
      EXPECT_TRUE(unclipped->was_step_applied());
      EXPECT_FALSE(is_finite(unclipped, "last.bias"));
      EXPECT_TRUE(is_finite(unclipped, "first.weight"));
    }
  });
}

/// Whether a good step has read the norm by itself; nothing where there is none.
std::optional<bool> reads_norm(const Json& config, const comm::World& world) {
  const auto engine = make_engine(config, world);
  const auto [inputs, targets] = odd_batch(4 * world.rank(), 4);
  const auto type = engine->module().parameters().front().scalar_type();
  engine->backward(engine->forward(inputs.to(type), targets));
  const zero::StepResult result = engine->optimizer()->step(1);
  EXPECT_TRUE(result.applied);
  if (!result.grad_norm) return std::nullopt;
  const bool was_read = result.grad_norm->was_read();
  EXPECT_GT(result.grad_norm->value(), 0.0);
  return was_read;
}

TEST(OverflowCheck, NothingWaitsForANormThatNothingNeeds) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(message("stage ", stage));
      EXPECT_EQ(reads_norm(checked(stage, 1.0, Json::object()), world), true);
      EXPECT_EQ(reads_norm(checked(stage, 0.0, bf16_with_check(true)), world), true);
      EXPECT_EQ(reads_norm(checked(stage, 1.0, bf16_with_check(false)), world), true);
      EXPECT_EQ(reads_norm(checked(stage, 0.0, bf16_with_check(false)), world), false);
      const auto fp32 = reads_norm(checked(stage, 0.0, Json::object()), world);
      EXPECT_EQ(fp32, stage == 0 ? std::nullopt : std::optional(false));
    }
  });
}

TEST(OverflowCheck, TheNormThatIsReadLateIsThatOfTheStep) {
  run_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    for (const double clipping : {1000.0, 0.0}) {
      const auto engine = make_engine(checked(1, clipping, Json::object()), world);
      train_step(*engine, 4 * world.rank());
      const auto [inputs, targets] = odd_batch(9, 4);
      engine->backward(engine->forward(inputs, targets));  // other gradients, before it is asked for
      norms.push_back(engine->get_global_grad_norm().value_or(0.0));
    }
    EXPECT_GT(norms[0], 0.0);
    EXPECT_EQ(norms[0], norms[1]);
  });
}

}  // namespace
}  // namespace deepspeed::testing
