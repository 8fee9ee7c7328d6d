// Ranks that were given different configs, models or hyperparameters are told so at once, by name.
#include <chrono>
#include <thread>

#include <torch/optim/adamw.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/schedules/warmup_lr.h"

#include "tests/engine/make_engine.h"
#include "tests/support/parting_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

using ::testing::AllOf;
using testing::basic;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::OddNet;
using testing::train_step;
using namespace std::chrono_literals;

constexpr const char* kNoError = "no error";

/// Returns what `program(rank, world)` complains of on each of two ranks.
template <class Program>
std::vector<std::string> texts_of(const Program& program) {
  return testing::errors_of_two_ranks<Error>([&](comm::World& world) {
    return [&] {
      program(world.rank(), world);
      world.group().barrier();
    };
  });
}

template <class Program>
void expect_named(const Program& program, const std::string& difference) {
  for (const auto& text : texts_of(program)) EXPECT_THAT(text, HasSubstr(difference));
}

template <class Program>
void expect_accepted(const Program& program) {
  for (const auto& text : texts_of(program)) EXPECT_EQ(text, kNoError);
}

Json with(const char* key, const Json& value) { return basic({{key, value}}); }

/// Initializes with the config of the rank and makes a step.
auto configs(const Json& zero, const Json& one) {
  return [=](int rank, comm::World& world) {
    const auto engine = make_engine(rank == 0 ? zero : one, world);
    if (engine->optimizer()) train_step(*engine, rank);
  };
}

Json at_rate(double lr, int stage) {
  Json config = basic({{"zero_optimization", {{"stage", stage}}}});
  config["optimizer"]["params"]["lr"] = lr;
  return config;
}

TEST(RankAgreement, IsRequiredOfTheConfigAndNamesTheKey) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& text : texts_of(configs(at_rate(0.1, stage), at_rate(0.9, stage)))) {
      EXPECT_THAT(text, AllOf(HasSubstr("[engine.rank_agreement]"),
                              HasSubstr("optimizer.params.lr is 0.1 on rank 0 and 0.9 on rank 1")))
          << stage;
    }
  }
  expect_named(configs(basic(), with("gradient_clipping", 0.25)),
               "gradient_clipping is 1.0 on rank 0 and 0.25 on rank 1");
  expect_named(configs(at_rate(0.1, 1), at_rate(0.1, 3)), "zero_optimization.stage is 1 on rank 0 and 3");
  expect_named(configs(basic(), with("bf16", {{"enabled", true}})), "bf16.enabled is false on rank 0 and");
  const Json warmup = {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 5}}}};
  Json longer = warmup;
  longer["params"]["warmup_num_steps"] = 50;
  expect_named(configs(with("scheduler", warmup), with("scheduler", longer)),
               "scheduler.params.warmup_num_steps is 5 on rank 0 and 50 on rank 1");
  expect_named(configs(basic(), with("scheduler", warmup)),
               "scheduler.type is absent on rank 0 and \"WarmupLR\" on rank 1");
}

TEST(RankAgreement, IsRequiredOfEnginesThatOnlyEvaluate) {
  for (const int stage : {0, 3}) {
    const Json evaluation = {{"train_micro_batch_size_per_gpu", 4},
                             {"zero_optimization", {{"stage", stage}}}};
    Json half = evaluation;
    half["bf16"]["enabled"] = true;
    expect_accepted(configs(evaluation, evaluation));
    expect_named(configs(evaluation, half), "bf16.enabled is false on rank 0 and true on rank 1");
  }
}

TEST(RankAgreement, IsAboutWhatHoldsNotAboutWhatIsSpelledOut) {
  Json spelled_out = basic({{"gradient_clipping", 1}, {"zero_optimization", {{"stage", 0}}}});
  spelled_out["optimizer"]["params"]["betas"] = {0.9, 0.999};
  spelled_out["optimizer"]["type"] = "adamw";
  expect_accepted(configs(basic(), spelled_out));
}

TEST(RankAgreement, LeavesARankItsOwnPathsLogsAndDisks) {
  const testing::TemporaryFolder zero, one;
  const auto config = [](const std::string& folder, bool first) {
    Json own = basic({{"log_level", first ? "error" : "off"},
                      {"dump_state", first},
                      {"wall_clock_breakdown", first},
                      {"memory_breakdown", !first},
                      {"aio", {{"block_size", first ? 4096 : 8192}}},
                      {"checkpoint", {{"writer", {{"type", "FAST"}, {"show_statistics", first}}}}},
                      {"tensorboard", {{"output_path", folder}}},
                      {"zero_optimization",
                       {{"stage", 2}, {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", folder}}}}}});
    if (first) own["steps_per_print"] = 1;
    return own;
  };
  expect_accepted(configs(config(zero.string(), true), config(one.string(), false)));
}

struct TwoLayers : torch::nn::Module {
  explicit TwoLayers(int64_t width, bool bias = true) {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(7, width).bias(bias)));
    last = register_module("last", torch::nn::Linear(width, 5));
  }
  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& targets) {
    return (last(first(inputs)) - targets).square().mean();
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

TEST(RankAgreement, IsRequiredOfTheModelAndNamesTheParameter) {
  for (const int stage : {0, 3}) {
    expect_named(
        [&](int rank, comm::World& world) {
          initialize(std::make_shared<TwoLayers>(rank == 0 ? 12 : 16),
                     {.config = at_rate(0.1, stage), .world = world});
        },
        "parameter 'first.weight' is (12, 7) Float");
    expect_named(
        [&](int rank, comm::World& world) {
          initialize(std::make_shared<TwoLayers>(12, rank == 0),
                     {.config = at_rate(0.1, stage), .world = world});
        },
        "parameter 'first.bias' is (12) Float, in group 0 on rank 0 and absent on rank 1");
  }
  expect_named(
      [](int rank, comm::World& world) {
        const auto net = std::make_shared<TwoLayers>(12);
        net->last->bias.set_requires_grad(rank == 1);
        initialize(net, {.config = basic(), .world = world});
      },
      "parameter 'last.bias' is (5) Float, not trained on rank 0 and (5) Float, in group 0 on rank 1");
}

TEST(RankAgreement, IsRequiredOfParameterGroupsAndNamesTheHyperparameter) {
  expect_named(
      [](int rank, comm::World& world) {
        const auto net = std::make_shared<TwoLayers>(12);
        const std::vector<ModelParameters> groups = {
            {{net->first->weight, net->last->weight}, {{"weight_decay", 0.1}}},
            {{net->first->bias, net->last->bias}, {{"weight_decay", rank == 0 ? 0.0 : 0.2}}}};
        initialize(net, {.config = basic(), .model_parameters = groups, .world = world});
      },
      "weight_decay of parameter group 1 is 0.0 on rank 0 and 0.2 on rank 1");
}

TEST(RankAgreement, IsRequiredOfTheProgramsOptimizersAndSchedules) {
  const Json config = {{"train_micro_batch_size_per_gpu", 4}};
  const auto adamw = [](const TwoLayers& net, double lr) {
    return std::make_shared<torch::optim::AdamW>(net.parameters(), torch::optim::AdamWOptions(lr));
  };
  expect_named(
      [&](int rank, comm::World& world) {
        const auto net = std::make_shared<TwoLayers>(12);
        initialize(net, {.config = config, .optimizer = adamw(*net, rank == 0 ? 0.1 : 0.9), .world = world});
      },
      "lr of parameter group 0 is 0.1 on rank 0 and 0.9 on rank 1");
  expect_named(
      [&](int rank, comm::World& world) {
        const auto net = std::make_shared<TwoLayers>(12);
        InitializeOptions options{.config = basic(), .world = world};
        if (rank == 1) options.optimizer = adamw(*net, 0.01);
        initialize(net, options);
      },
      "the optimizer's origin is the config on rank 0 and the program on rank 1");
  expect_named(
      [&](int rank, comm::World& world) {
        InitializeOptions options{.config = basic(), .world = world};
        const auto warmup = [rank](std::vector<optim::ParamGroup>& groups) {
          return std::make_unique<optim::WarmupLr>(groups, std::vector<double>{0.0},
                                                   std::vector<double>{rank == 0 ? 0.1 : 0.9},
                                                   optim::Warmup{10, optim::Warmup::Shape::kLinear});
        };
        options.lr_scheduler = warmup;
        const auto engine = initialize(std::make_shared<OddNet>(), options).engine;
        for (int step = 0; step < 3; ++step) train_step(*engine, rank);
      },
      "lr of parameter group 0 is ");
}

/// Trains two steps, lets `change` change rank 1 alone, and trains on.
template <class Change>
auto change_on_one_rank(int stage, const Change& change) {
  return [=](int rank, comm::World& world) {
    const auto engine = make_engine(at_rate(0.01, stage), world);
    for (int step = 0; step < 2; ++step) train_step(*engine, step);
    if (rank == 1) change(*engine);
    // At stage 0 ranks meet in backward alone, and a window of 4 that begins here meets at its end.
    for (int step = 0; step < 4; ++step) train_step(*engine, step);
  };
}

TEST(RankAgreement, IsRequiredOfSettersAtTheNextStep) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto set_rate = change_on_one_rank(stage, [](auto& engine) { engine.set_lr(0.5); });
    for (const auto& text : texts_of(set_rate)) {
      EXPECT_THAT(text, AllOf(HasSubstr("lr of parameter group 0 is 0.01 on rank 0 and 0.5 on rank 1"),
                              HasSubstr("micro step 2")))
          << stage;
    }
    expect_named(change_on_one_rank(stage,
                                    [](auto& engine) {
                                      engine.optimizer()->param_groups()[0].options.set("weight_decay", 0.5);
                                    }),
                 "weight_decay of parameter group 0 is 0.0 on rank 0 and 0.5 on rank 1");
  }
  expect_named(change_on_one_rank(1, [](auto& engine) { engine.set_train_batch_size(32); }),
               "gradient_accumulation_steps is 1 on rank 0 and 4 on rank 1");
  expect_named(change_on_one_rank(1, [](auto& engine) { engine.set_train_micro_batch_size(2); }),
               "train_micro_batch_size_per_gpu is 4 on rank 0 and 2 on rank 1");
  expect_named(change_on_one_rank(0, [](auto& engine) { engine.set_gradient_average(false); }),
               "gradient_average() is true on rank 0 and false on rank 1");
}

// The rate changes after backward, where stages from 1 on meet once more in step().
TEST(RankAgreement, IsRequiredOfARateThatChangesBeforeStep) {
  for (const int stage : {1, 2, 3}) {
    expect_named(
        [&](int rank, comm::World& world) {
          const auto engine = make_engine(at_rate(0.01, stage), world);
          const auto [inputs, targets] = testing::odd_batch(rank, 4);
          engine->backward(engine->forward(inputs, targets));
          if (rank == 1) engine->optimizer()->param_groups()[0].set_lr(0.5);
          engine->step();
        },
        "lr of parameter group 0 is 0.01 on rank 0 and 0.5 on rank 1");
  }
}

TEST(RankAgreement, FollowsSettersThatAllRanksCall) {
  for (const int stage : {0, 1, 2, 3}) {
    expect_accepted([&](int rank, comm::World& world) {
      const Json schedule = {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 5}}}};
      Json config = at_rate(0.01, stage);
      config["scheduler"] = schedule;
      const auto engine = make_engine(config, world);
      for (int step = 0; step < 6; ++step) {
        if (step == 3) engine->set_lr(0.001);
        if (step == 4) engine->set_train_batch_size(16);
        std::this_thread::sleep_for(rank * 20ms);
        train_step(*engine, step);
      }
    });
  }
}

}  // namespace
}  // namespace deepspeed
