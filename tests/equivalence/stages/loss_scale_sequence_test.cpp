// fp16 with forced overflows: scale, counters, schedule and weights follow, step by step, a loss scaler that
// is written down here a second time.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int kSteps = 200;

/// Rules of the documentation: `hysteresis` overflows halve the scale, and each further one does; a window
/// without overflow doubles it and, as a good step does with consecutive_hysteresis, allows them again.
struct ReferenceScaler {
  double scale;
  int window, hysteresis;
  bool consecutive;
  int left = hysteresis;
  int good = 0;  // steps since the last overflow

  void update(bool overflow) {
    if (overflow) {
      if (left == 1) {
        scale /= 2;
      } else {
        --left;
      }
      good = 0;
      return;
    }
    if (consecutive) left = hysteresis;
    // The step that makes the window full does not count for it.
    if (good > 0 && good % window == 0) {
      scale *= 2;
      left = hysteresis;
    }
    ++good;
  }
};

struct Case {
  int stage, window, hysteresis;
  bool consecutive;
  int seed;
};

/// Bursts and single ones, about one step in seven: with the windows below the scale moves between 1 and
/// 4096, where gradients do not overflow by themselves.
bool overflows(int seed, int step) {
  const double phase = 0.37 * seed;
  return std::sin(phase + 0.9 * step) + std::sin(phase + 0.23 * step) > 1.35 || (step * 7 + seed) % 41 == 0;
}

Json scaled_config(const Case& c) {
  return {
      {"train_micro_batch_size_per_gpu", 2},
      {"log_level", "error"},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.001}}}}},
      {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_min_lr", 1e-4}, {"warmup_num_steps", 300}}}}},
      {"zero_optimization", {{"stage", c.stage}, {"reduce_bucket_size", 150}}},
      {"fp16",
       {{"enabled", true},
        {"initial_scale_power", 9},
        {"loss_scale_window", c.window},
        {"hysteresis", c.hysteresis},
        {"consecutive_hysteresis", c.consecutive}}}};
}

/// The rate after each number of updates, from a schedule that sees no overflow.
std::vector<double> rates(Json config, const comm::World& world) {
  config.erase("fp16");
  config["zero_optimization"]["stage"] = 0;
  const auto engine = initialize(std::make_shared<OddNet>(), {.config = config, .world = world}).engine;
  std::vector<double> result = engine->get_lr();
  for (int step = 0; step < kSteps; ++step) {
    const auto [inputs, targets] = odd_batch(0, 2);
    engine->backward(engine->forward(inputs, targets));
    engine->step();
    result.push_back(engine->get_lr().at(0));
  }
  return result;
}

/// The number of overflows.
int follow(const Case& c, const comm::World& world, const std::vector<double>& expected_rates) {
  const auto engine =
      initialize(std::make_shared<OddNet>(), {.config = scaled_config(c), .world = world}).engine;
  ReferenceScaler reference{512, c.window, c.hysteresis, c.consecutive};
  size_t updates = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool overflow = overflows(c.seed, step);
    auto [inputs, targets] = odd_batch(2 * (2 * step + world.rank()), 2);
    // On one rank alone.
    if (overflow && world.rank() == step % 2) targets.fill_(std::numeric_limits<float>::infinity());
    const at::Tensor before = engine->optimizer()->state().master(0).clone();
    EXPECT_EQ(engine->loss_scale(), reference.scale) << "step " << step;
    engine->backward(engine->forward(inputs.to(at::kHalf), targets));
    engine->step();
    reference.update(overflow);
    updates += overflow ? 0 : 1;
    EXPECT_EQ(engine->was_step_applied(), !overflow) << "step " << step;
    EXPECT_EQ(engine->skipped_steps(), step + 1 - static_cast<int64_t>(updates));
    EXPECT_EQ(engine->global_steps(), step + 1);
    EXPECT_EQ(engine->get_lr().at(0), expected_rates.at(updates)) << "step " << step;
    EXPECT_EQ(engine->optimizer()->state().master(0).equal(before), overflow) << "step " << step;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(engine->loss_scale(), reference.scale);
  return kSteps - static_cast<int>(updates);
}

TEST(LossScaleSequence, IsFollowedExactlyOverForcedOverflows) {
  run_ranks(2, [](comm::World& world) {
    const std::vector<double> expected_rates = rates(scaled_config({0, 5, 1, false, 0}), world);
    for (const Case& c : {Case{0, 5, 2, false, 0}, Case{1, 7, 2, false, 1}, Case{2, 5, 1, false, 2},
                          Case{1, 13, 3, true, 3}, Case{2, 9, 2, true, 4}}) {
      SCOPED_TRACE(message("stage ", c.stage, " window ", c.window, " hysteresis ", c.hysteresis,
                           c.consecutive ? " consecutive" : ""));
      EXPECT_GT(follow(c, world, expected_rates), 20);
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
