// What an engine logs of its times, its memory and its rates.
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using testing::basic;
using ::testing::HasSubstr;
using testing::make_engine;
using ::testing::Not;
using testing::train_step;

std::string logged_by(const std::function<void()>& body) {
  const log::Level before = log::level();
  log::set_level(log::Level::kInfo);
  ::testing::internal::CaptureStderr();
  body();
  log::set_level(before);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Breakdown, LogsTheTimesOfEachMicroBatchAndOfEachReport) {
  const auto engine = make_engine(
      basic({{"wall_clock_breakdown", true}, {"gradient_accumulation_steps", 2}, {"steps_per_print", 1}}));
  EXPECT_TRUE(engine->get_wall_clock_timers().empty());
  const std::string micro = logged_by([&] { train_step(*engine); });
  EXPECT_THAT(micro, HasSubstr("time (ms) | fwd_microstep: "));
  EXPECT_THAT(micro, Not(HasSubstr(" | bwd: ")));
  EXPECT_THAT(logged_by([&] { train_step(*engine); }), HasSubstr("time (ms) | fwd: "));
  const auto times = engine->get_wall_clock_timers();
  for (const char* name : {"fwd", "bwd", "bwd_inner", "step"}) {
    EXPECT_GT(times.at(name), 0.0) << name;
    if (name != std::string("step")) {
      EXPECT_GT(times.at(name), times.at(name + std::string("_microstep"))) << name;
    }
  }
  EXPECT_GE(times.at("bwd"), times.at("bwd_inner") + times.at("bwd_allreduce") - 0.01);
}

TEST(Breakdown, LogsTheTimesOfEachUpdateWithoutStepsPerPrint) {
  const auto engine =
      make_engine(basic({{"wall_clock_breakdown", true}, {"gradient_accumulation_steps", 2}}));
  EXPECT_THAT(logged_by([&] { train_step(*engine); }), Not(HasSubstr(" | bwd: ")));
  EXPECT_THAT(logged_by([&] { train_step(*engine); }), HasSubstr("time (ms) | fwd: "));
}

TEST(Breakdown, CountsReductionsThatBackwardMakesAsSuch) {
  testing::run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto engine =
          make_engine(basic({{"wall_clock_breakdown", true},
                             {"log_level", "warning"},
                             {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 100}}}}),
                      world);
      train_step(*engine);
      const auto times = engine->get_wall_clock_timers();
      EXPECT_GT(times.at("bwd_allreduce_microstep"), 0.0) << stage;
      EXPECT_GT(times.at("bwd_inner_microstep"), 0.0) << stage;
      EXPECT_GE(times.at("bwd_microstep"),
                times.at("bwd_inner_microstep") + times.at("bwd_allreduce_microstep") - 0.01);
    }
  });
}

TEST(Breakdown, LeavesEvaluationOut) {
  const auto engine = make_engine(basic({{"wall_clock_breakdown", true}}));
  train_step(*engine);
  engine->eval();
  engine->forward(testing::odd_batch(0, 4).first, testing::odd_batch(0, 4).second);
  engine->train();
  const auto loss =
      engine->backward(engine->forward(testing::odd_batch(0, 4).first, testing::odd_batch(0, 4).second));
  engine->step();
  EXPECT_GT(engine->get_wall_clock_timers().at("fwd_microstep"), 0.0);
}

TEST(Breakdown, IsSilentUnlessAskedFor) {
  const auto engine = make_engine(basic());
  train_step(*engine);  // of which activation_report_test.cpp holds the one line
  EXPECT_EQ(logged_by([&] { train_step(*engine); }), "");
  EXPECT_TRUE(engine->get_wall_clock_timers().empty());
}

TEST(Breakdown, LogsTheMemoryAroundEachPart) {
  const auto engine = make_engine(basic({{"memory_breakdown", true}}));
  const std::string lines = logged_by([&] { train_step(*engine); });
  for (const char* when : {"before forward", "after forward", "before backward", "after backward",
                           "before step", "after step"}) {
    EXPECT_THAT(lines, HasSubstr("memory " + std::string(when) + ": allocated "));
  }
}

TEST(Breakdown, LogsSamplesASecondFromTheThirdStepOn) {
  const auto run = [](const Json& patch) {
    const auto engine = make_engine(basic(patch));
    train_step(*engine);
    train_step(*engine);
    return logged_by([&] { train_step(*engine); });
  };
  EXPECT_THAT(run({{"steps_per_print", 3}}),
              HasSubstr("epoch=0/micro_step=3/global_step=3, RunningAvgSamplesPerSec="));
  EXPECT_THAT(run({{"steps_per_print", 1}, {"timers", {{"throughput", {{"enabled", false}}}}}}),
              Not(HasSubstr("SamplesPerSec")));
}

}  // namespace
}  // namespace deepspeed
