// Schedules that a program brings along, driven by an engine and carried by its checkpoints.
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using testing::basic;
using testing::OddNet;
using testing::TemporaryFolder;
using testing::train_step;

/// 0.1, 0.05, 0.025, ...
struct Halving {
  double rate = 0.1;
  std::vector<double> get_lr() const { return {rate}; }
  void step() { rate /= 2; }
  Json state_dict() const { return {{"rate", rate}}; }
  void load_state_dict(const Json& state) { rate = state.at("rate"); }
};

std::vector<double> rates_of_steps(auto& engine, int steps) {
  std::vector<double> rates;
  for (int i = 0; i < steps; ++i) {
    rates.push_back(engine.get_lr()[0]);
    train_step(engine, i);
  }
  return rates;
}

TEST(EngineLrScheduler, StepsAndResumesAUsersObject) {
  const TemporaryFolder folder;
  const auto make = [] {
    return initialize(std::make_shared<OddNet>(),
                      {.config = basic(), .lr_scheduler = std::make_shared<Halving>()})
        .engine;
  };
  const auto engine = make();
  EXPECT_EQ(rates_of_steps(*engine, 3), (std::vector<double>{0.1, 0.05, 0.025}));
  engine->save_checkpoint(folder.path());
  const auto resumed = make();
  resumed->load_checkpoint(folder.path());
  EXPECT_EQ(resumed->get_lr(), engine->get_lr());
  EXPECT_EQ(rates_of_steps(*resumed, 2), (std::vector<double>{0.0125, 0.00625}));
}

TEST(EngineLrScheduler, IsReplacedByAnother) {
  const auto engine =
      initialize(std::make_shared<OddNet>(), {.config = basic(), .lr_scheduler = std::make_shared<Halving>()})
          .engine;
  EXPECT_EQ(rates_of_steps(*engine, 2), (std::vector<double>{0.1, 0.05}));
  engine->set_lr_scheduler(std::make_shared<Halving>());
  EXPECT_EQ(rates_of_steps(*engine, 2), (std::vector<double>{0.1, 0.05}));
  engine->set_lr_scheduler(nullptr);
  EXPECT_EQ(engine->lr_scheduler(), nullptr);
  EXPECT_EQ(rates_of_steps(*engine, 2), (std::vector<double>{0.025, 0.025}));
}

TEST(EngineLrScheduler, DoesNotMoveInASkippedStep) {
  auto [engine, optimizer, loader, scheduler] = initialize(
      std::make_shared<OddNet>(), {.config = basic(), .lr_scheduler = std::make_shared<Halving>()});
  const auto [inputs, targets] = testing::odd_batch(0, 4);
  engine->backward(engine->forward(inputs, targets * INFINITY));
  engine->step();
  EXPECT_FALSE(engine->was_step_applied());
  EXPECT_EQ(engine->get_lr()[0], 0.1);
}

TEST(EngineLrScheduler, TorchsStepLrDrivesTheEngineAsItDrivesTorch) {
  auto reference = std::make_shared<OddNet>();
  torch::optim::SGD plain(reference->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::StepLR plain_schedule(plain, 2, 0.5);
  for (int i = 0; i < 5; ++i) {
    const auto [inputs, targets] = testing::odd_batch(i, 4);
    plain.zero_grad();
    reference->forward(inputs, targets).backward();
    plain.step();
    plain_schedule.step();
  }
  auto model = std::make_shared<OddNet>();
  auto sgd =
      std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto step_lr = std::make_shared<torch::optim::StepLR>(*sgd, 2, 0.5);
  const Json config = {{"train_batch_size", 4}, {"gradient_clipping", 0.0}};
  auto [engine, optimizer, loader, scheduler] =
      initialize(model, {.config = config, .optimizer = sgd, .lr_scheduler = step_lr});
  EXPECT_EQ(rates_of_steps(*engine, 5), (std::vector<double>{0.1, 0.1, 0.1, 0.05, 0.05}));
  for (const auto& item : reference->named_parameters()) {
    EXPECT_TRUE(model->named_parameters()[item.key()].allclose(item.value(), 1e-6, 1e-7)) << item.key();
  }
}

TEST(EngineLrScheduler, TorchsScheduleOverTheConfigsOptimizerResumesExactlyOnTwoRanks) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](comm::World& world) {
    for (const int stage : {0, 1, 2}) {
      const auto make = [&] {
        const optim::LrSchedulerSource schedule = [](torch::optim::Optimizer& optimizer) {
          return std::make_shared<torch::optim::StepLR>(optimizer, 2, 0.5);
        };
        return initialize(std::make_shared<OddNet>(),
                          {.config = basic({{"zero_optimization", {{"stage", stage}}}}),
                           .lr_scheduler = schedule,
                           .world = world})
            .engine;
      };
      const auto engine = make();
      EXPECT_EQ(rates_of_steps(*engine, 3), (std::vector<double>{0.01, 0.01, 0.01}));
      const auto directory = folder.path() / std::to_string(stage);
      engine->save_checkpoint(directory);
      const auto resumed = make();
      resumed->load_checkpoint(directory);
      EXPECT_EQ(rates_of_steps(*engine, 3), (std::vector<double>{0.005, 0.005, 0.0025}));
      EXPECT_EQ(rates_of_steps(*resumed, 3), (std::vector<double>{0.005, 0.005, 0.0025}));
      for (const auto& item : engine->module().named_parameters()) {
        EXPECT_TRUE(resumed->module().named_parameters()[item.key()].equal(item.value())) << item.key();
      }
    }
  });
}

/// A schedule as the config or the program gives it.
struct ScheduleCase {
  const char* name;
  Json config;
  std::function<optim::LrSchedulerSource()> source = [] { return optim::LrSchedulerSource(); };
};

std::vector<ScheduleCase> all_kinds_of_schedules() {
  const auto named = [](const char* type, Json params) {
    return ScheduleCase{type, {{"type", type}, {"params", std::move(params)}}};
  };
  return {{"none", nullptr},
          named("LRRangeTest", {{"lr_range_test_step_size", 2}}),
          named("OneCycle", {{"cycle_min_lr", 0.001}, {"cycle_max_lr", 0.1}, {"cycle_first_step_size", 3}}),
          named("WarmupLR", {{"warmup_max_lr", 0.1}, {"warmup_num_steps", 9}}),
          named("WarmupDecayLR", {{"total_num_steps", 9}, {"warmup_num_steps", 4}}),
          named("WarmupCosineLR", {{"total_num_steps", 9}, {"warmup_num_steps", 4}}),
          {"a user's", nullptr, [] { return optim::LrSchedulerSource(std::make_shared<Halving>()); }},
          {"torch's", nullptr, [] {
             return optim::LrSchedulerSource([](torch::optim::Optimizer& optimizer) {
               return std::make_shared<torch::optim::StepLR>(optimizer, 2, 0.5);
             });
           }}};
}

// What was set by hand holds until the schedule's next step, with a save and a load in between as without.
TEST(EngineLrScheduler, ResumesRatesThatWereSetByHandExactly) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](comm::World& world) {
    for (const ScheduleCase& schedule : all_kinds_of_schedules()) {
      for (const int stage : {0, 1, 3}) {
        SCOPED_TRACE(message(schedule.name, ", stage ", stage));
        Json config = basic({{"zero_optimization", {{"stage", stage}}}, {"log_level", "error"}});
        if (!schedule.config.is_null()) config["scheduler"] = schedule.config;
        const auto make = [&] {
          return initialize(std::make_shared<OddNet>(),
                            {.config = config, .lr_scheduler = schedule.source(), .world = world})
              .engine;
        };
        const auto engine = make();
        for (int i = 0; i < 3; ++i) train_step(*engine, i);
        engine->set_lr(0.5);
        auto& options = engine->optimizer()->param_groups()[0].options;
        options.set("weight_decay", 0.125);
        options.set("betas", std::pair{0.75, 0.875});
        const auto directory = folder.path() / message(schedule.name, stage);
        engine->save_checkpoint(directory);
        const auto resumed = make();
        resumed->load_checkpoint(directory);
        const auto& loaded = resumed->optimizer()->param_groups()[0].options;
        EXPECT_EQ(resumed->get_lr()[0], 0.5);
        EXPECT_EQ(loaded.number("weight_decay"), 0.125);
        EXPECT_EQ(loaded.pair("betas"), (std::pair{0.75, 0.875}));
        EXPECT_EQ(rates_of_steps(*resumed, 4), rates_of_steps(*engine, 4));
        EXPECT_EQ(resumed->get_lr(), engine->get_lr());
        EXPECT_TRUE(resumed->optimizer()->state().master(0).equal(engine->optimizer()->state().master(0)));
      }
    }
  });
}

TEST(EngineLrScheduler, SetLrRefusesWhatIsNoRate) {
  const auto engine = testing::make_engine(basic());
  for (const double rate : {std::nan(""), HUGE_VAL, -HUGE_VAL, -0.1}) {
    EXPECT_ERROR(UsageError, engine->set_lr(rate), "] the learning rate is ",
                 "expected a finite number of at least 0")
        << rate;
  }
  EXPECT_EQ(engine->get_lr()[0], 0.01);
  engine->set_lr(0.0);
  EXPECT_EQ(engine->get_lr()[0], 0.0);
}

TEST(EngineLrScheduler, UpdatesNothingForAStepNumberThatItDoesNotTake) {
  const auto engine =
      initialize(std::make_shared<OddNet>(), {.config = basic(), .lr_scheduler = std::make_shared<Halving>()})
          .engine;
  const auto [inputs, targets] = testing::odd_batch(0, 4);
  engine->backward(engine->forward(inputs, targets));
  const at::Tensor before = engine->optimizer()->state().master(0).clone();
  EXPECT_ERROR(UsageError, engine->step({.last_batch_iteration = 3}), "step(last_batch_iteration = 3)",
               "leave the number out");
  EXPECT_TRUE(engine->optimizer()->state().master(0).equal(before));
  EXPECT_EQ(engine->global_steps(), 0);
  engine->step();  // the gradients are still there
  EXPECT_EQ(engine->global_steps(), 1);
  EXPECT_FALSE(engine->optimizer()->state().master(0).equal(before));
}

TEST(EngineLrScheduler, RefusesAForeignTorchSchedule) {
  auto model = std::make_shared<OddNet>();
  torch::optim::SGD other(std::make_shared<OddNet>()->parameters(), torch::optim::SGDOptions(0.1));
  auto schedule = std::make_shared<torch::optim::StepLR>(other, 2);
  EXPECT_ERROR(UsageError, initialize(model, {.config = basic(), .lr_scheduler = schedule}),
               "none was passed to initialize(); pass that optimizer too");
  auto own = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_ERROR(
      UsageError,
      initialize(model,
                 {.config = Json{{"train_batch_size", 4}}, .optimizer = own, .lr_scheduler = schedule}),
      "the torch schedule drives another optimizer than the one passed with it");
}

}  // namespace
}  // namespace deepspeed
