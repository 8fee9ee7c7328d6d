// Schedules of users' own types and of torch, as objects and as callables.
#include "deepspeed/optim/schedules/lr_scheduler_source.h"

#include <map>

#include <ATen/ops/ones.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/warmup_lr.h"

#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using Groups = std::vector<ParamGroup>;
using Rates = std::vector<double>;

Groups two_groups() {
  Groups groups(2);
  groups[0].set_lr(0.5);
  groups[1].set_lr(0.25);
  return groups;
}

Rates rates_of(const Groups& groups) {
  Rates rates;
  for (const ParamGroup& group : groups) rates.push_back(group.lr());
  return rates;
}

/// One rate for all groups, half of it after each step; its state is a plain number.
struct Halving {
  double rate = 1.0;
  int steps = 0;
  double get_lr() const { return rate; }
  void step() {
    rate /= 2;
    ++steps;
  }
  int state_dict() const { return steps; }
  void load_state_dict(int state) {
    steps = state;
    rate = 1.0 / (1 << state);
  }
};

/// A rate a group, no rates before the first step, a map as its state, and a step by number.
struct Counting {
  int64_t t = -1;
  Rates get_lr() const { return {1000.0, 1000.0}; }  // never written: there is get_last_lr()
  Rates get_last_lr() const {
    return t < 0 ? Rates{} : Rates{static_cast<double>(t), static_cast<double>(10 * t)};
  }
  void step() { ++t; }
  void step(int64_t last_batch_iteration) { t = last_batch_iteration; }
  std::map<std::string, int64_t> state_dict() const { return {{"t", t}}; }
  void load_state_dict(const std::map<std::string, int64_t>& state) { t = state.at("t"); }
};

TEST(LrSchedulerSource, WritesTheRatesOfAUsersObjectIntoAllGroups) {
  Groups groups = two_groups();
  const auto scheduler = LrSchedulerSource(std::make_shared<Halving>()).make({groups});
  EXPECT_EQ(rates_of(groups), (Rates{1.0, 1.0}));
  scheduler->step();
  EXPECT_EQ(rates_of(groups), (Rates{0.5, 0.5}));
  EXPECT_EQ(scheduler->get_lr(), (Rates{0.5, 0.5}));
  EXPECT_EQ(scheduler->get_last_lr(), (Rates{0.5, 0.5}));
  EXPECT_THAT(error_of<UsageError>([&] { scheduler->step(3); }), HasSubstr("no step(int64_t)"));

  const Json state = scheduler->state_dict();
  EXPECT_EQ(state, Json(1));
  Groups others = two_groups();
  const auto resumed = LrSchedulerSource(std::make_shared<Halving>()).make({others});
  resumed->load_state_dict(state);
  EXPECT_EQ(rates_of(others), (Rates{0.5, 0.5}));
}

TEST(LrSchedulerSource, PrefersGetLastLrAndStepsByNumberIfTheObjectCan) {
  Groups groups = two_groups();
  const auto scheduler = LrSchedulerSource(std::make_shared<Counting>()).make({groups});
  EXPECT_EQ(rates_of(groups), (Rates{0.5, 0.25}));  // it has no rates yet
  scheduler->step();
  EXPECT_EQ(rates_of(groups), (Rates{0.0, 0.0}));
  scheduler->step(7);
  EXPECT_EQ(rates_of(groups), (Rates{7.0, 70.0}));
  scheduler->load_state_dict({{"t", 2}});
  EXPECT_EQ(rates_of(groups), (Rates{2.0, 20.0}));
  EXPECT_EQ(scheduler->get_lr(), (Rates{1000.0, 1000.0}));
}

TEST(LrSchedulerSource, TakesCallablesOverTheGroups) {
  Groups groups = two_groups();
  const LrSchedulerSource native = [](Groups& given) {
    return std::make_unique<WarmupLr>(given, Rates{0.0, 0.0}, Rates{4.0, 8.0},
                                      Warmup(4, Warmup::Shape::kLinear));
  };
  const auto warmup = native.make({groups});
  warmup->step();
  warmup->step();
  EXPECT_EQ(rates_of(groups), (Rates{1.0, 2.0}));
  double first = 0.0;
  const LrSchedulerSource own = [&first](Groups& given) {
    first = given[0].lr();
    return std::make_shared<Halving>();
  };
  own.make({groups});
  EXPECT_EQ(first, 1.0);
  EXPECT_EQ(rates_of(groups), (Rates{1.0, 1.0}));
}

TEST(LrSchedulerSource, FollowsATorchScheduleOverAStandInOptimizer) {
  Groups groups = two_groups();
  const LrSchedulerSource source = [](torch::optim::Optimizer& optimizer) {
    return std::make_shared<torch::optim::StepLR>(optimizer, 2, 0.1);
  };
  const auto scheduler = source.make({groups});
  EXPECT_EQ(rates_of(groups), (Rates{0.5, 0.25}));
  scheduler->step();
  scheduler->step();
  EXPECT_EQ(rates_of(groups), (Rates{0.5, 0.25}));
  scheduler->step();  // torch in C++ decays one step later than torch in Python
  EXPECT_EQ(rates_of(groups), (Rates{0.05, 0.025}));
  EXPECT_EQ(scheduler->get_last_lr(), (Rates{0.05, 0.025}));
  groups[0].set_lr(3.0);  // the schedule goes on from a rate that was set by hand
  scheduler->step();
  EXPECT_EQ(rates_of(groups), (Rates{3.0, 0.025}));
  scheduler->step();
  EXPECT_DOUBLE_EQ(groups[0].lr(), 0.3);
  EXPECT_THAT(error_of<UsageError>([&] { scheduler->step(3); }), HasSubstr("one step at a time"));

  Groups others = two_groups();
  const auto resumed = source.make({others});
  resumed->load_state_dict(scheduler->state_dict());
  EXPECT_EQ(rates_of(others), rates_of(groups));
  resumed->step();
  EXPECT_EQ(rates_of(others), rates_of(groups));
  resumed->step();
  EXPECT_DOUBLE_EQ(others[0].lr(), 0.03);
  for (const char* wrong : {"{}", "3", R"({"step_count": 1, "last_lr": [1]})", R"({"step_count": -1})"}) {
    EXPECT_ERROR(CheckpointError, resumed->load_state_dict(Json::parse(wrong)),
                 "torch schedule over 2 parameter groups", "{\"last_epoch\": n, \"_last_lr\": [...]}")
        << wrong;
  }
}

TEST(LrSchedulerSource, TakesATorchScheduleOnlyOverTheProgramsOwnOptimizer) {
  Groups groups(1);
  groups[0].set_lr(0.5);
  const auto make_sgd = [] {
    return std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{at::ones({2})},
                                               torch::optim::SGDOptions(0.5));
  };
  const auto own = make_sgd(), foreign = make_sgd();
  const auto over = [](torch::optim::Optimizer& optimizer) {
    return LrSchedulerSource(std::make_shared<torch::optim::StepLR>(optimizer, 1, 0.5));
  };
  const auto scheduler = over(*own).make({groups, own});
  scheduler->step();
  EXPECT_EQ(groups[0].lr(), 0.5);
  scheduler->step();
  EXPECT_EQ(groups[0].lr(), 0.25);
  EXPECT_EQ(own->param_groups()[0].options().get_lr(), 0.25);
  EXPECT_THAT(error_of<UsageError>([&] {
                over(*foreign).make({groups, own});
              }),
              HasSubstr("drives another optimizer"));
  EXPECT_EQ(foreign->param_groups()[0].options().get_lr(), 0.5);
  EXPECT_THAT(error_of<UsageError>([&] { over(*own).make({groups}); }), HasSubstr("pass that optimizer too"));
}

TEST(LrSchedulerSource, TakesAnObjectThatIsALrSchedulerOfTheUsers) {
  struct Constant : LrScheduler {
    void step(std::optional<int64_t>) override {}
    Rates get_lr() const override { return {0.75}; }
    Rates get_last_lr() const override { return {0.75}; }
    Json state_dict() const override { return nullptr; }
    void load_state_dict(const Json&) override {}
  };
  Groups groups = two_groups();
  const std::shared_ptr<LrScheduler> constant = std::make_shared<Constant>();
  const auto scheduler = LrSchedulerSource(constant).make({groups});
  scheduler->step(4);
  EXPECT_EQ(rates_of(groups), (Rates{0.75, 0.75}));
}

TEST(LrSchedulerSource, RefusesWhatCannotBeDriven) {
  Groups groups = two_groups(), others = two_groups();
  const auto warmup =
      std::make_shared<WarmupLr>(others, Rates{0.0, 0.0}, Rates{1.0, 1.0}, Warmup(4, Warmup::Shape::kLinear));
  EXPECT_THAT(error_of<UsageError>([&] { LrSchedulerSource(warmup).make({groups}); }),
              HasSubstr("pass a callable"));
  const LrSchedulerSource nothing = [](Groups&) { return std::shared_ptr<Halving>(); };
  EXPECT_THAT(error_of<UsageError>([&] { nothing.make({groups}); }), HasSubstr("returned null"));
  EXPECT_FALSE(LrSchedulerSource(nullptr));
  EXPECT_FALSE(LrSchedulerSource(std::shared_ptr<Halving>()));
  const LrSchedulerSource plateau = [](torch::optim::Optimizer& optimizer) {
    return std::make_shared<torch::optim::ReduceLROnPlateauScheduler>(optimizer);
  };
  EXPECT_THAT(error_of<NotSupportedError>([&] { plateau.make({groups}); }), HasSubstr("set_lr"));
  struct ThreeRates : Counting {
    Rates get_last_lr() const { return {1, 2, 3}; }
  };
  EXPECT_THAT(error_of<UsageError>([&] { LrSchedulerSource(std::make_shared<ThreeRates>()).make({groups}); }),
              HasSubstr("gives 3 rates"));
}

}  // namespace
}  // namespace deepspeed::optim
