// Engines of one process train and evaluate in threads of their own, whose order differs between the ranks.
#include <chrono>
#include <future>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed {
namespace {

using testing::basic;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::run_ranks;
using namespace std::chrono_literals;

constexpr int kSteps = 12;
const testing::RunRanksOptions kShort{.hang_limit = 50s, .comm_timeout = 20s};

/// Runs both at the same time; what one throws is thrown here.
template <class One, class Other>
void run_both(const One& one, const Other& other) {
  auto beside = std::async(std::launch::async, one);
  other();
  beside.get();
}

/// Late in every second step, so that ranks that begin differently come to the engines in different orders.
void sleep_in_turn(int step, bool late_first) {
  if ((step % 2 == 0) == late_first) std::this_thread::sleep_for(4ms);
}

template <class Engine>
std::vector<double> train(Engine& engine, int64_t first, bool late_first = false) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    sleep_in_turn(step, late_first);
    losses.push_back(testing::train_step(engine, first + 8 * step));
  }
  return losses;
}

template <class Engine>
std::vector<double> evaluate(Engine& engine, int64_t first, bool late_first = false) {
  const at::NoGradGuard no_grad;
  engine.eval();
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    sleep_in_turn(step, late_first);
    const auto [inputs, targets] = testing::odd_batch(first + 8 * step, 4);
    losses.push_back(engine.forward(inputs, targets).template item<double>());
  }
  return losses;
}

Json training_config(int stage) {
  return basic({{"gradient_clipping", 0.5}, {"zero_optimization", {{"stage", stage}}}});
}

// Gathers everything at each use and nothing ahead, so that there are many.
Json evaluation_config() {
  return {{"train_micro_batch_size_per_gpu", 4},
          {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}};
}

class SeveralEngines : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stage, SeveralEngines, ::testing::Values(0, 1, 2, 3));

TEST_P(SeveralEngines, TrainInThreadsAsOneAfterTheOther) {
  const Json config = training_config(GetParam());
  run_ranks(
      2,
      [&](comm::World& world) {
        const auto left_alone = train(*make_engine(config, world), 0);
        const auto right_alone = train(*make_engine(config, world), 1003);
        const auto left = make_engine(config, world), right = make_engine(config, world);
        const bool is_first = world.rank() == 0;
        run_both([&] { EXPECT_EQ(train(*left, 0, is_first), left_alone); },
                 [&] { EXPECT_EQ(train(*right, 1003, !is_first), right_alone); });
        EXPECT_NE(left_alone, right_alone);
      },
      kShort);
}

TEST_P(SeveralEngines, TrainBesideOneThatEvaluates) {
  const Json config = training_config(GetParam());
  run_ranks(
      2,
      [&](comm::World& world) {
        const auto trained_alone = train(*make_engine(config, world), 0);
        const auto evaluated_alone = evaluate(*make_engine(evaluation_config(), world), 1003);
        const auto left = make_engine(config, world), right = make_engine(evaluation_config(), world);
        const bool is_first = world.rank() == 0;
        run_both([&] { EXPECT_EQ(train(*left, 0, is_first), trained_alone); },
                 [&] { EXPECT_EQ(evaluate(*right, 1003, !is_first), evaluated_alone); });
      },
      kShort);
}

TEST_P(SeveralEngines, AreInitializedByThreadsThatNameThem) {
  const Json config = training_config(GetParam());
  run_ranks(
      2,
      [&](comm::World& world) {
        const auto run = [&](const std::string& name, int64_t first, bool is_late) {
          if (is_late) std::this_thread::sleep_for(300ms);
          const auto engine = initialize(std::make_shared<testing::OddNet>(),
                                         {.config = config, .world = world, .engine_name = name})
                                  .engine;
          EXPECT_EQ(engine->data_parallel_group().name(), "engine '" + name + "'");
          train(*engine, first);
        };
        run_both([&] { run("actor", 0, world.rank() == 0); },
                 [&] { run("critic", 1003, world.rank() == 1); });
      },
      kShort);
}

TEST(SeveralEnginesAtStage3, EvaluateInTwoThreads) {
  run_ranks(
      2,
      [](comm::World& world) {
        const auto expected_left = evaluate(*make_engine(evaluation_config(), world), 0);
        const auto expected_right = evaluate(*make_engine(evaluation_config(), world), 1003);
        const auto left = make_engine(evaluation_config(), world);
        const auto right = make_engine(evaluation_config(), world);
        const bool is_first = world.rank() == 0;
        run_both([&] { EXPECT_EQ(evaluate(*left, 0, is_first), expected_left); },
                 [&] { EXPECT_EQ(evaluate(*right, 1003, !is_first), expected_right); });
      },
      kShort);
}

// Whichever of two threads came first on a rank, its engine would meet the other rank's first.
TEST(SeveralEnginesOfOneConfig, AreNotConfused) {
  run_ranks(
      2,
      [](comm::World& world) {
        const auto engine = make_engine(training_config(1), world);
        const auto text =
            std::async(std::launch::async, [&] {
              return testing::error_of<UsageError>([&] { make_engine(training_config(1), world); });
            }).get();
        EXPECT_THAT(text, HasSubstr("engine_name"));
        std::async(std::launch::async, [&] { train(*make_engine(training_config(2), world), 0); }).get();
      },
      kShort);
}

// The error of one engine is its own.
TEST(SeveralEnginesInThreads, ContinueIfAnotherDiverges) {
  run_ranks(
      2,
      [](comm::World& world) {
        const auto left = make_engine(training_config(2), world),
                   right = make_engine(training_config(3), world);
        const auto diverge = [&] {
          train(*left, 0);
          EXPECT_THAT(testing::error_of<CommError>([&] {
                        if (world.rank() == 0) left->data_parallel_group().barrier();
                        train(*left, 0);
                      }),
                      HasSubstr("the ranks diverged in group 'engine'"));
        };
        const auto go_on = [&] {
          train(*right, 1003);
          for (const int late : {0, 1}) {
            if (world.rank() == late) std::this_thread::sleep_for(3s);
            train(*right, 2005);
          }
        };
        run_both(diverge, go_on);
      },
      kShort);
}

}  // namespace
}  // namespace deepspeed
