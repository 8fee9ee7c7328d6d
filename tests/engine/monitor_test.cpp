// What engines tell their monitors.
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/monitor/monitor_master.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class Collected : public monitor::Monitor {
 public:
  void write_events(const std::vector<monitor::Event>& events) override {
    all.insert(all.end(), events.begin(), events.end());
  }
  std::vector<monitor::Event> all;
};

Json with_csv(const TemporaryFolder& folder, Json patch = Json::object()) {
  Json config = basic({{"csv_monitor", {{"enabled", true}, {"output_path", folder.string()}}}});
  config.merge_patch(patch);
  return config;
}

TEST(EngineMonitor, GetsTheRateOfEachUpdateFromRankZero) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const Json config = with_csv(
        folder, {{"gradient_accumulation_steps", 2},
                 {"scheduler",
                  {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 4}, {"warmup_type", "linear"}}}}}});
    const auto engine = make_engine(config, world);
    for (int64_t step = 0; step < 4; ++step) train_step(*engine, 4 * step);
    EXPECT_EQ(engine->monitor().enabled(), world.rank() == 0);
    engine->monitor().write_events({{"Eval/accuracy", 0.5, engine->global_samples()}});
  });
  EXPECT_EQ(text_of(folder.path() / "DeepSpeedJobName/Train_Samples_lr.csv"), "step,lr\n16,0\n32,0.0025\n");
  EXPECT_EQ(text_of(folder.path() / "DeepSpeedJobName/Eval_accuracy.csv"), "step,accuracy\n32,0.5\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "DeepSpeedJobName/Train_Samples_loss_scale.csv"));
}

TEST(EngineMonitor, GetsTheLossScaleAndTheTimes) {
  const auto engine = make_engine(basic({{"log_level", "error"},
                                         {"wall_clock_breakdown", true},
                                         {"fp16", {{"enabled", true}, {"initial_scale_power", 4}}}}));
  const auto monitor = std::make_shared<Collected>();
  engine->monitor().add(monitor);
  train_step(*engine);
  std::set<std::string> names;
  for (const monitor::Event& event : monitor->all) {
    names.insert(event.name);
    EXPECT_EQ(event.step, 4);
    if (event.name == "Train/Samples/loss_scale") {
      EXPECT_EQ(event.value, 16.0);
    } else if (event.name == "Train/Samples/elapsed_time_ms_backward") {
      EXPECT_GT(event.value, 0.0);
    }
  }
  EXPECT_EQ(names.size(), 7u);
}

TEST(EngineMonitor, IsOpenedOrAllRanksSayWhyNot) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "DeepSpeedJobName") << "a file";
  run_ranks(2, [&](comm::World& world) {
    EXPECT_ERROR(IoError, make_engine(with_csv(folder), world), "cannot make the folder", "DeepSpeedJobName");
  });
}

TEST(EngineMonitor, TakesAServiceFromTheProgram) {
  for (const char* section : {"tensorboard", "wandb", "comet"}) {
    EXPECT_ERROR(ConfigError, make_engine(basic({{section, {{"enabled", true}}}})),
                 std::string(section) + ".enabled", "engine->monitor().add()");
  }
}

}  // namespace
}  // namespace deepspeed::testing
