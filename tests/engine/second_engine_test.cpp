// An engine of its own over the parts that Engine is made of, without any of Engine itself: what pipelines
// and other front ends build on. It trains, saves and resumes as deepspeed::initialize()'s engine does.
#include <memory>

#include <gtest/gtest.h>

#include "deepspeed/engine/assembly/build.h"
#include "deepspeed/engine/model/describe_module.h"
#include "deepspeed/engine/saving/checkpoints.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/engine/step/scopes.h"
#include "deepspeed/engine/step/step_driver.h"

#include "tests/engine/make_engine.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

using testing::basic;
using testing::OddNet;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::train_step;

class TinyEngine {
 public:
  TinyEngine(const Json& config, const comm::World& world)
      : net_(std::make_shared<OddNet>()),
        state_(build_engine(describe_module(net_), {.config = config, .world = world})),
        driver_(state_) {}

  OddNet& module() { return *net_; }
  const RunCounters& counters() const { return state_.counters; }

  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& targets) {
    const ForwardScope scope(driver_);
    return scope.output(net_->forward(inputs, targets));
  }
  void backward(const at::Tensor& loss) { driver_.backward(loss, {}); }
  void step() { driver_.step({}); }

  void save(const std::string& directory) { save_checkpoint(state_, directory); }
  void load(const std::string& directory) {
    load_checkpoint(state_, directory);
    driver_.refresh();
  }

 private:
  std::shared_ptr<OddNet> net_;
  TrainingState state_;
  StepDriver driver_;
};

Json second_engine_config(int stage, const char* precision) {
  Json config = basic({{"gradient_accumulation_steps", 2},
                       {"gradient_clipping", 0.5},
                       {"zero_optimization", {{"stage", stage}}},
                       {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 3}}}}},
                       {"log_level", "off"}});
  if (precision != std::string("fp32")) config[precision] = {{"enabled", true}};
  return config;
}

class SecondEngine : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(SecondEngine, TrainsAsTheFirst) {
  const auto [stage, precision] = GetParam();
  run_ranks(2, [config = second_engine_config(stage, precision)](comm::World& world) {
    at::manual_seed(7);
    const auto first = testing::make_engine(config, world);
    at::manual_seed(7);
    TinyEngine second(config, world);
    for (int step = 0; step < 6; ++step)
      EXPECT_EQ(train_step(second, step), train_step(*first, step)) << step;
    EXPECT_EQ(second.counters().global_steps, 3);
    EXPECT_EQ(second.counters().micro_steps, first->micro_steps());
  });
}

TEST_P(SecondEngine, SavesAndResumes) {
  const auto [stage, precision] = GetParam();
  const TemporaryFolder folder;
  run_ranks(2, [&, config = second_engine_config(stage, precision)](comm::World& world) {
    std::vector<double> expected;
    {
      TinyEngine engine(config, world);
      for (int step = 0; step < 4; ++step) train_step(engine, step);
      engine.save(folder / "run");
      for (int step = 4; step < 8; ++step) expected.push_back(train_step(engine, step));
    }
    TinyEngine resumed(config, world);
    resumed.load(folder / "run");
    EXPECT_EQ(resumed.counters().global_steps, 2);
    const auto first = testing::make_engine(config, world);
    first->load_checkpoint(folder / "run");
    for (int step = 4; step < 8; ++step) {
      EXPECT_EQ(train_step(resumed, step), expected[step - 4]) << step;
      EXPECT_EQ(train_step(*first, step), expected[step - 4]) << step;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, SecondEngine,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values("fp32", "bf16")),
                         [](const auto& info) {
                           return "Stage" + std::to_string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace deepspeed
