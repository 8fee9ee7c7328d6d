// Arguments that schedules made by hand, not by a config, cannot take.
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/chained_lr.h"
#include "deepspeed/optim/schedules/lr_range_test.h"
#include "deepspeed/optim/schedules/one_cycle.h"
#include "deepspeed/optim/schedules/warmup_lr.h"

#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

class HandMadeSchedule : public ::testing::Test {
 protected:
  HandMadeSchedule() : groups_(2) {
    for (ParamGroup& group : groups_) group.set_lr(0.5);
  }

  std::vector<ParamGroup> groups_, none_;
};

TEST_F(HandMadeSchedule, HasAGroupToWriteTo) {
  EXPECT_ERROR(UsageError, ChainedLr(none_, exponential_lr(0.5)),
               "no parameter group, expected at least one");
  EXPECT_ERROR(UsageError, LrRangeTest(none_, {}, 1, 1.0, false),
               "no parameter group, expected at least one");
}

TEST_F(HandMadeSchedule, HasARateForEachGroup) {
  const Warmup warmup(2, Warmup::Shape::kLinear);
  EXPECT_ERROR(UsageError, LrRangeTest(groups_, {0.1}, 1, 1.0, false), "1 rates for 2 parameter groups");
  EXPECT_ERROR(UsageError, WarmupLr(groups_, {0.0, 0.0}, {1.0}, warmup),
               "2 and 1 rates for 2 parameter groups");
  OneCycleOptions options;
  options.min_lr = {0.1, 0.1};
  options.max_lr = {0.5, 0.5, 0.5};
  EXPECT_ERROR(UsageError, OneCycle(groups_, options), "3 rates or momenta for 2 parameter groups");
}

TEST_F(HandMadeSchedule, HasSizesAboveZero) {
  EXPECT_ERROR(UsageError, LrRangeTest(groups_, {0.1, 0.1}, 0, 1.0, false),
               "lr_range_test_step_size is 0, expected at least 1");
  EXPECT_ERROR(UsageError, Warmup(-1, Warmup::Shape::kLog), "warmup_num_steps is -1, expected at least 0");
  OneCycleOptions options;
  options.first_step_size = 0;
  EXPECT_ERROR(UsageError, OneCycle(groups_, options), "a first step size above 0");
}

TEST_F(HandMadeSchedule, RefusesAStepBeforeTheFirst) {
  const LrRangeTest schedule(groups_, {0.1, 0.1}, 1, 1.0, false);
  EXPECT_NO_THROW(schedule.check_step(-1));
  EXPECT_ERROR(UsageError, schedule.check_step(-2), "step(-2)", "at least -1");
}

TEST_F(HandMadeSchedule, ReturnsTheRatesOfItsGroupsFromTorch) {
  groups_[1].set_lr(0.25);
  ChainedLr schedule(groups_, exponential_lr(0.5));
  EXPECT_NO_THROW(schedule.check_step({}));
  schedule.step();
  EXPECT_EQ(schedule.get_lr(), (std::vector<double>{0.25, 0.125}));
  EXPECT_EQ(schedule.get_lr(), schedule.get_last_lr());
}

}  // namespace
}  // namespace deepspeed::optim
