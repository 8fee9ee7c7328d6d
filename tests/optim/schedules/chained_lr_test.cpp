// The schedules of torch that a config names, against the rates that torch in Python gives.
#include "deepspeed/optim/schedules/chained_lr.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/lr_scheduler_factory.h"

#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

std::vector<ParamGroup> chained_groups(const std::vector<double>& rates) {
  std::vector<ParamGroup> groups(rates.size());
  for (size_t i = 0; i < rates.size(); ++i) groups[i].set_lr(rates[i]);
  return groups;
}

// The rate of a group of rate 1 after construction and after each of the steps.
void expect_torch_rates(const std::string& type, const char* params, const std::vector<double>& expected) {
  auto groups = chained_groups({1.0, 0.5});
  const auto schedule = make_lr_scheduler(type, Json::parse(params), groups);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i > 0) schedule->step();
    EXPECT_NEAR(groups[0].lr(), expected[i], 1e-8) << type << " " << params << " value " << i;
    EXPECT_EQ(schedule->get_last_lr()[0], groups[0].lr());
    if (type == "CosineAnnealingLR") continue;  // to one lowest rate from each
    EXPECT_NEAR(groups[1].lr(), expected[i] / 2, 1e-8) << type << " value " << i;
  }
}

TEST(ChainedLr, HasTheRatesOfTorchInPython) {
  expect_torch_rates("StepLR", R"({"step_size": 2, "gamma": 0.5})", {1, 1, 0.5, 0.5, 0.25, 0.25});
  expect_torch_rates("StepLR", R"({"step_size": 1})", {1, 0.1, 0.01});
  expect_torch_rates("MultiStepLR", R"({"milestones": [2, 3, 3]})", {1, 1, 0.1, 0.001, 0.001});
  expect_torch_rates("ConstantLR", R"({"factor": 0.5, "total_iters": 2})", {0.5, 0.5, 1, 1});
  expect_torch_rates("LinearLR", R"({"start_factor": 0.5, "total_iters": 4})",
                     {0.5, 0.625, 0.75, 0.875, 1, 1});
  expect_torch_rates("LinearLR", "{}", {1.0 / 3, 0.46666667, 0.6, 0.73333333, 0.86666667, 1, 1});
  expect_torch_rates("ExponentialLR", R"({"gamma": 0.5})", {1, 0.5, 0.25, 0.125});
  expect_torch_rates("PolynomialLR", R"({"total_iters": 4, "power": 2})", {1, 0.5625, 0.25, 0.0625, 0, 0});
  expect_torch_rates("CosineAnnealingLR", R"({"T_max": 4})",
                     {1, 0.85355339, 0.5, 0.14644661, 0, 0.14644661, 0.5, 0.85355339, 1, 0.85355339});
  expect_torch_rates("CosineAnnealingLR", R"({"T_max": 2, "eta_min": 0.2})", {1, 0.6, 0.2, 0.6, 1});
}

TEST(ChainedLr, ContinuesFromItsStateAndFromARateSetByHand) {
  const Json params = {{"step_size", 2}, {"gamma", 0.5}};
  auto groups = chained_groups({1.0, 0.5}), others = chained_groups({1.0, 0.5});
  const auto schedule = make_lr_scheduler("StepLR", params, groups);
  const auto resumed = make_lr_scheduler("StepLR", params, others);
  for (int i = 0; i < 3; ++i) schedule->step();
  // The names of torch in Python, which takes this state and gives such a one.
  EXPECT_EQ(
      schedule->state_dict(),
      Json::parse(R"({"base_lrs": [1.0, 0.5], "last_epoch": 3, "_step_count": 4, "_last_lr": [0.5, 0.25]})"));
  resumed->load_state_dict(schedule->state_dict());
  EXPECT_EQ(others[1].lr(), 0.25);
  groups[0].set_lr(8.0);
  others[0].set_lr(8.0);
  schedule->step();
  resumed->step();
  EXPECT_EQ(groups[0].lr(), 4.0);
  EXPECT_EQ(others[0].lr(), 4.0);
}

TEST(ChainedLr, RefusesAStateThatIsNotItsOwn) {
  auto groups = chained_groups({1.0});
  const auto schedule = make_lr_scheduler("ExponentialLR", {{"gamma", 0.5}}, groups);
  for (const char* state :
       {"{}", R"({"last_batch_iteration": 3})", R"({"base_lrs": [1], "last_epoch": -1, "_last_lr": [1]})",
        R"({"base_lrs": [1, 2], "last_epoch": 1, "_last_lr": [1, 2]})"}) {
    EXPECT_ERROR(CheckpointError, schedule->load_state_dict(Json::parse(state)),
                 "schedule of torch over 1 parameter groups",
                 "{\"base_lrs\": [...], \"last_epoch\": n, \"_last_lr\": [...]}")
        << state;
  }
  EXPECT_ERROR(UsageError, schedule->step(4), "step(last_batch_iteration = 4)", "leave the number out");
  EXPECT_EQ(groups[0].lr(), 1.0);
}

TEST(LrSchedulerNames, ListTheKnownOnesForAnUnknownOne) {
  auto groups = chained_groups({1.0});
  const auto complaint = [&](const char* type) {
    return error_of<ConfigError>([&] { make_lr_scheduler(type, Json::object(), groups); });
  };
  EXPECT_THAT(complaint("NoamLR"), AllOf(HasSubstr("scheduler.type: \"NoamLR\" is unknown"),
                                         HasSubstr("there are LRRangeTest, OneCycle, WarmupLR"),
                                         HasSubstr("StepLR"), HasSubstr("lr_scheduler")));
  EXPECT_THAT(complaint("steplr"), HasSubstr("did you mean \"StepLR\"?"));
  EXPECT_THAT(
      error_of<NotSupportedError>([&] { make_lr_scheduler("ReduceLROnPlateau", Json::object(), groups); }),
      AllOf(HasSubstr("metric"), HasSubstr("set_lr()")));
}

}  // namespace
}  // namespace deepspeed::optim
