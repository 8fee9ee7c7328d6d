#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/lr_scheduler_factory.h"

#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

using ::testing::HasSubstr;

std::vector<ParamGroup> groups_with_lr(std::vector<double> rates) {
  std::vector<ParamGroup> groups(rates.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    groups[i].set_lr(rates[i]);
    groups[i].options.set("betas", std::pair{0.9, 0.999});
  }
  return groups;
}

// The rate after construction and after each of the steps, as the group holds it, against the worked vector.
void expect_rates(const std::string& type, const char* params, const std::vector<double>& expected) {
  auto groups = groups_with_lr({0.01});
  const auto scheduler = make_lr_scheduler(type, Json::parse(params), groups);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i > 0) scheduler->step();
    EXPECT_NEAR(groups[0].lr(), expected[i], 6e-9) << type << " " << params << " value " << i;
    EXPECT_EQ(scheduler->get_last_lr()[0], groups[0].lr());
    EXPECT_EQ(scheduler->get_lr()[0], groups[0].lr());
  }
}

TEST(LrRangeTest, FollowsTheWorkedVectors) {
  expect_rates(
      "LRRangeTest",
      R"({"lr_range_test_min_lr": 0.001, "lr_range_test_step_size": 2, "lr_range_test_step_rate": 1})",
      {0.001, 0.0015, 0.002, 0.0025, 0.003, 0.0035});
  expect_rates(
      "LRRangeTest",
      R"({"lr_range_test_min_lr": 0.001, "lr_range_test_step_size": 2, "lr_range_test_staircase": true})",
      {0.001, 0.001, 0.002, 0.002, 0.003, 0.003});
}

TEST(OneCycle, FollowsTheWorkedVectorAndWritesTheBetas) {
  const char* params = R"({"cycle_min_lr": 0.001, "cycle_max_lr": 0.01, "cycle_first_step_size": 3,
                           "decay_lr_rate": 0.5, "decay_step_size": 2})";
  expect_rates("OneCycle", params,
               {0.001, 0.004, 0.007, 0.01, 0.007, 0.004, 0.001, 0.0008, 0.00066666667, 0.00057142857});
  auto groups = groups_with_lr({0.01});
  const auto scheduler = make_lr_scheduler("OneCycle", Json::parse(params), groups);
  EXPECT_EQ(groups[0].options.pair("betas"), (std::pair{0.8, 0.99}));
  for (int i = 0; i < 3; ++i) scheduler->step();
  EXPECT_NEAR(groups[0].options.pair("betas").first, 0.8, 1e-12)
      << "the momentum is least where the rate is largest";
  for (int i = 0; i < 6; ++i) scheduler->step();
  EXPECT_EQ(groups[0].options.pair("betas"), (std::pair{0.9, 0.99}));
}

TEST(OneCycle, MovesTheMomentumOfEachGroupBetweenItsOwnEnds) {
  auto groups = groups_with_lr({0.01, 0.01});
  const auto scheduler = make_lr_scheduler(
      "OneCycle", Json::parse(R"({"cycle_min_lr": 0.001, "cycle_max_lr": 0.01, "cycle_first_step_size": 3,
                                  "cycle_min_mom": [0.7, 0.8], "cycle_max_mom": [0.85, 0.95]})"),
      groups);
  const auto momenta = [&] {
    return std::vector<double>{groups[0].options.pair("betas").first, groups[1].options.pair("betas").first};
  };
  EXPECT_EQ(momenta(), (std::vector<double>{0.7, 0.8}));
  scheduler->step();
  EXPECT_NEAR(momenta()[0], 0.8, 1e-12);
  EXPECT_NEAR(momenta()[1], 0.9, 1e-12);
  for (int i = 0; i < 8; ++i) scheduler->step();
  EXPECT_EQ(momenta(), (std::vector<double>{0.85, 0.95}));
}

TEST(OneCycle, ClimbsInStairs) {
  expect_rates(
      "OneCycle",
      R"({"cycle_min_lr": 0, "cycle_max_lr": 1, "cycle_first_step_size": 4, "cycle_first_stair_count": 2})",
      {0, 0, 0.5, 0.5, 1, 0.5, 0.5, 0, 0, 0});
}

TEST(OneCycle, LeavesTheMomentumOfAnOptimizerWithoutBetas) {
  std::vector<ParamGroup> groups(1);
  groups[0].set_lr(0.1);
  const auto scheduler =
      make_lr_scheduler("OneCycle", Json::parse(R"({"cycle_min_lr": 0, "cycle_max_lr": 1})"), groups);
  scheduler->step();
  EXPECT_FALSE(groups[0].options.contains("betas"));
}

TEST(OneCycle, SaysWhenItTakesAnotherSecondBeta) {
  const auto said = [](bool cycle_momentum, double second) {
    auto groups = groups_with_lr({0.01});
    groups[0].options.set("betas", std::pair{0.9, second});
    ::testing::internal::CaptureStderr();
    make_lr_scheduler("OneCycle",
                      {{"cycle_min_lr", 0}, {"cycle_max_lr", 1}, {"cycle_momentum", cycle_momentum}}, groups);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(true, 0.95), HasSubstr("betas to 0.99 in place of 0.95"));
  EXPECT_EQ(said(true, 0.99), "");
  EXPECT_EQ(said(false, 0.95), "");
}

TEST(OneCycle, TakesNoStepThatRaisesTheMomentumToOne) {
  auto groups = groups_with_lr({0.01});
  ::testing::internal::CaptureStderr();
  const auto scheduler = make_lr_scheduler(
      "OneCycle", Json::parse(R"({"cycle_min_lr": 0.1, "cycle_max_lr": 1, "decay_step_size": 2,
                                                    "cycle_first_step_size": 2, "decay_mom_rate": 0.05})"),
      groups);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the momentum 0.9 grows after the cycle and reaches 1 about step 9"));
  for (int step = 1; step < 9; ++step) scheduler->step();
  const auto betas = groups[0].options.pair("betas");
  EXPECT_LT(betas.first, 1.0);
  EXPECT_GT(betas.first, 0.9);
  EXPECT_ERROR(UsageError, scheduler->check_step({}), "with step 9 the momentum of group 0 becomes 1.0125",
               "set decay_mom_rate, which is 0.05, to 0");
  EXPECT_ERROR(UsageError, scheduler->step(), "with step 9");
  EXPECT_EQ(groups[0].options.pair("betas"), betas);
}

TEST(LrScheduler, IsOnlyForEvaluationWithoutSteps) {
  for (const char* type : {"WarmupDecayLR", "WarmupCosineLR"}) {
    SCOPED_TRACE(type);
    auto groups = groups_with_lr({0.01});
    ::testing::internal::CaptureStderr();
    const auto scheduler = make_lr_scheduler(type, {{"total_num_steps", 0}, {"warmup_num_steps", 0}}, groups);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_ERROR(UsageError, scheduler->check_step({}), "scheduler.params.total_num_steps: got 0",
                 "expected the number of updates");
    EXPECT_ERROR(UsageError, scheduler->step(), "scheduler.params.total_num_steps: got 0");
    EXPECT_EQ(scheduler->state_dict()["last_batch_iteration"], -1);
  }
}

TEST(WarmupLr, FollowsTheWorkedVectors) {
  expect_rates("WarmupLR", R"({"warmup_min_lr": 0, "warmup_max_lr": 0.1, "warmup_num_steps": 4})",
               {0, 0, 0.05, 0.07924813, 0.1, 0.1, 0.1});
  expect_rates(
      "WarmupLR",
      R"({"warmup_min_lr": 0, "warmup_max_lr": 0.1, "warmup_num_steps": 4, "warmup_type": "linear"})",
      {0, 0, 0.025, 0.05, 0.075, 0.1, 0.1});
}

TEST(WarmupLr, ClimbsToEachGroupsOwnRateByDefault) {
  auto groups = groups_with_lr({0.1, 0.2});
  const auto scheduler = make_lr_scheduler("WarmupLR", Json::parse(R"({"warmup_num_steps": 2})"), groups);
  EXPECT_EQ(groups[1].lr(), 0);
  for (int i = 0; i < 3; ++i) scheduler->step();
  EXPECT_EQ(scheduler->get_last_lr(), (std::vector<double>{0.1, 0.2}));
}

TEST(WarmupLr, CountsZeroAndOneStepAsTwo) {
  const std::vector<double> expected{0, 0, 0.1, 0.1};
  expect_rates("WarmupLR", R"({"warmup_max_lr": 0.1, "warmup_num_steps": 0})", expected);
  expect_rates("WarmupLR", R"({"warmup_max_lr": 0.1, "warmup_num_steps": 1})", expected);
  expect_rates("WarmupLR", R"({"warmup_max_lr": 0.1, "warmup_num_steps": 2})", expected);
}

TEST(WarmupDecayLr, FollowsTheWorkedVector) {
  expect_rates(
      "WarmupDecayLR",
      R"({"total_num_steps": 10, "warmup_min_lr": 0, "warmup_max_lr": 0.1, "warmup_num_steps": 4})",
      {0, 0, 0.05, 0.07924813, 0.1, 0.1, 0.083333333, 0.066666667, 0.05, 0.033333333, 0.016666667, 0});
}

TEST(WarmupCosineLr, FollowsTheWorkedVector) {
  expect_rates(
      "WarmupCosineLR", R"({"total_num_steps": 10, "warmup_num_steps": 4})",
      {0, 0, 0.005, 0.00792481, 0.01, 0.00933019, 0.00750025, 0.0050005, 0.00250075, 0.00067081, 1e-6, 1e-6});
}

TEST(LrScheduler, ContinuesFromItsState) {
  const Json params = Json::parse(R"({"total_num_steps": 20, "warmup_num_steps": 4})");
  auto groups = groups_with_lr({0.01}), others = groups_with_lr({0.01});
  const auto scheduler = make_lr_scheduler("WarmupCosineLR", params, groups);
  for (int i = 0; i < 7; ++i) scheduler->step();
  EXPECT_EQ(scheduler->state_dict(), Json::parse(R"({"last_batch_iteration": 6})"));
  const auto resumed = make_lr_scheduler("WarmupCosineLR", params, others);
  resumed->load_state_dict(scheduler->state_dict());
  EXPECT_EQ(others[0].lr(), groups[0].lr());
  scheduler->step();
  resumed->step();
  EXPECT_EQ(others[0].lr(), groups[0].lr());
  EXPECT_ERROR(CheckpointError, resumed->load_state_dict(Json::parse("{}")),
               "the state {} holds no whole number 'last_batch_iteration' of at least -1");
}

// As in DeepSpeed: the groups keep their own rates until the next step, which is that of the uninterrupted
// schedule.
TEST(LrScheduler, BeginsAfterTheStepThatItsParametersName) {
  const std::vector<std::pair<const char*, Json>> schedules = {
      {"LRRangeTest", {{"lr_range_test_step_size", 2}}},
      {"OneCycle", {{"cycle_min_lr", 0.001}, {"cycle_max_lr", 0.1}, {"cycle_first_step_size", 20}}},
      {"WarmupLR", {{"warmup_num_steps", 30}}},
      {"WarmupDecayLR", {{"total_num_steps", 20}, {"warmup_num_steps", 4}}},
      {"WarmupCosineLR", {{"total_num_steps", 20}, {"warmup_num_steps", 4}}}};
  for (const auto& [type, params] : schedules) {
    auto groups = groups_with_lr({0.01, 0.02}), others = groups;
    const auto whole = make_lr_scheduler(type, params, groups);
    for (int i = 0; i < 7; ++i) whole->step();  // to step 6
    Json begun = params;
    begun["last_batch_iteration"] = 6;
    const auto later = make_lr_scheduler(type, begun, others);
    EXPECT_EQ(later->get_last_lr(), (std::vector<double>{0.01, 0.02})) << type;
    EXPECT_EQ(others[1].lr(), 0.02) << type;
    EXPECT_EQ(others[1].options.pair("betas"), (std::pair{0.9, 0.999})) << type;
    EXPECT_EQ(later->state_dict(), whole->state_dict()) << type;
    whole->step();
    later->step();
    EXPECT_EQ(others[1].lr(), groups[1].lr()) << type;
    EXPECT_EQ(others[1].options.pair("betas"), groups[1].options.pair("betas")) << type;
  }
}

TEST(ParamGroup, RefusesARateThatIsNoNumberOrNegative) {
  ParamGroup group;
  group.set_lr(0.25);
  for (const double rate : {std::nan(""), HUGE_VAL, -HUGE_VAL, -1e-9}) {
    EXPECT_ERROR(UsageError, group.set_lr(rate), "the learning rate is ",
                 "expected a finite number of at least 0")
        << rate;
  }
  EXPECT_EQ(group.lr(), 0.25);
  group.set_lr(0.0);
  EXPECT_EQ(group.lr(), 0.0);
}

void expect_schedule_error(const std::string& type, const char* params, const std::string& part) {
  auto groups = groups_with_lr({0.01});
  EXPECT_ERROR(ConfigError, make_lr_scheduler(type, Json::parse(params), groups), part);
}

TEST(LrScheduler, NamesTheKeyThatIsWrong) {
  expect_schedule_error("WarmupLR", R"({"warmup_num_step": 4})",
                        "scheduler.params.warmup_num_step: unknown key");
  expect_schedule_error("WarmupLR", R"({"warmup_num_step": 4})",
                        "did you mean 'scheduler.params.warmup_num_steps'?");
  expect_schedule_error("WarmupLR", R"({"warmup_num_steps": -1})", "scheduler.params.warmup_num_steps");
  expect_schedule_error("WarmupLR", R"({"warmup_type": "square"})", "scheduler.params.warmup_type");
  expect_schedule_error("WarmupLR", R"({"warmup_max_lr": [1, 2]})",
                        "scheduler.params.warmup_max_lr: got 2 numbers");
  expect_schedule_error("WarmupDecayLR", "{}", "scheduler.params.total_num_steps: missing");
  expect_schedule_error("OneCycle", R"({"cycle_min_lr": 0, "cycle_max_lr": 1, "cycle_min_mom": [0.7, 0.8]})",
                        "scheduler.params.cycle_min_mom: got 2 numbers");
  expect_schedule_error("WarmupLR", R"({"last_batch_iteration": -2})",
                        "scheduler.params.last_batch_iteration");
  expect_schedule_error("StepLR", "{}", "scheduler.params.step_size: missing");
  expect_schedule_error("OneCycle", R"({"cycle_min_lr": 1})", "scheduler.params.cycle_max_lr: missing");
  expect_schedule_error("LinearLR", R"({"end_factor": 1.5})",
                        "scheduler.params.end_factor: got 1.5, expected a number from 0 to 1");
  expect_schedule_error("LinearLR", R"({"start_factor": 2})",
                        "scheduler.params.start_factor: got 2, expected a number above 0, at most 1");
  expect_schedule_error("ConstantLR", R"({"factor": 1.01})",
                        "scheduler.params.factor: got 1.01, expected a number above 0, at most 1");
  expect_schedule_error("warmuplr", "{}", "did you mean \"WarmupLR\"");
}

}  // namespace
}  // namespace deepspeed::optim
