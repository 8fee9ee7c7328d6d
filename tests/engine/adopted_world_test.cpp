// Engines over a process group that a script made: they train as over a world of their own.
#include <chrono>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/comm/adopt.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/script_group.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

using ::testing::AllOf;
using testing::basic;
using testing::error_of;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::make_script_group;
using testing::num_script_calls;
using testing::run_ranks_collect;
using testing::run_scripts;
using testing::script_sum;
using testing::TemporaryFolder;
using testing::train_step;

Json config_of_stage(int stage) {
  return basic({{"zero_optimization", {{"stage", stage}, {"overlap_comm", stage > 0}}}});
}

// The losses of some steps in all their digits.
std::string losses_over(const comm::World& world, int stage) {
  torch::manual_seed(3);
  auto engine = make_engine(config_of_stage(stage), world);
  std::ostringstream losses;
  for (int step = 0; step < 5; ++step)
    losses << std::hexfloat << train_step(*engine, world.rank() * 4 + step) << "\n";
  return losses.str();
}

TEST(AdoptedWorld, TrainsAsAWorldOfItsOwnWhileTheScriptUsesTheGroup) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto expected = run_ranks_collect(2, [&](comm::World& world) { return losses_over(world, stage); });
    const TemporaryFolder folder;
    const auto losses = run_scripts(2, [&](int rank) {
      const auto script = make_script_group(rank, 2, folder / "store");
      const auto world = comm::adopt({.group = script.group, .timeout = std::chrono::seconds(60)});
      std::thread metric([&] {
        for (int i = 0; i < 20; ++i) EXPECT_EQ(script_sum(*script.group, rank), 1);
      });
      auto text = losses_over(world, stage);
      metric.join();
      EXPECT_EQ(num_script_calls(), 20);
      return text;
    });
    EXPECT_EQ(losses, expected) << "stage " << stage;
  }
}

TEST(AdoptedWorld, IsTheOneOfAnEngineThatIsGivenNone) {
  const TemporaryFolder folder;
  run_scripts(2, [&](int rank) {
    for (int round = 0; round < 3; ++round) {
      auto script = make_script_group(rank, 2, folder / std::to_string(round));
      comm::adopt_as_world({.group = script.group, .timeout = std::chrono::seconds(60)});
      auto engine = make_engine(config_of_stage(1));
      EXPECT_EQ(engine->world().group().c10d_group(), script.group);
      train_step(*engine, rank * 4);
    }
    return std::string();
  });
}

TEST(AdoptedWorld, EndsTheEnginesThatOutliveTheGroup) {
  for (const int stage : {1, 3}) {
    const TemporaryFolder folder;
    const auto errors = run_scripts(2, [&](int rank) {
      auto script = make_script_group(rank, 2, folder / "store");
      comm::adopt_as_world({.group = script.group, .timeout = std::chrono::seconds(60)});
      auto engine = make_engine(config_of_stage(stage));
      train_step(*engine, rank * 4);
      script_sum(*script.group, 0);
      script = make_script_group(rank, 2, folder / "next");
      comm::adopt_as_world({.group = script.group, .timeout = std::chrono::seconds(60)});
      auto text = error_of<std::exception>([&] { train_step(*engine, rank * 4); });
      EXPECT_GT(train_step(*make_engine(config_of_stage(stage)), rank * 4), 0);
      return text;
    });
    for (const auto& error : errors) {
      EXPECT_THAT(error, AllOf(HasSubstr("group 'engine' cannot run"),
                               HasSubstr("destroyed the process group that its world was adopted from")))
          << "stage " << stage;
    }
  }
}

}  // namespace
}  // namespace deepspeed
