// What an engine logs of the memory of activations.
#include <functional>
#include <string>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/base/log.h"
#include "deepspeed/deepspeed.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string lines_of(const std::function<void()>& body) {
  std::string lines;
  const log::Level level = log::level();
  log::set_level(log::Level::kInfo);
  const auto before = log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
  body();
  log::set_sink(before);
  log::set_level(level);
  return lines;
}

struct Squares : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return (x * weight).pow(2).sum(); }
  at::Tensor weight = register_parameter("weight", at::ones({1}));
};

void update_once(auto& engine) {
  engine.backward(engine.forward(at::ones({1000, 25})));
  engine.step();
}

auto engine_with(const Json& more) {
  Json config = {{"train_batch_size", 1}, {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 1e-9}}}}}};
  config.update(more);
  return initialize(std::make_shared<Squares>(), {.config = config}).engine;
}

// Backward needs the input (for the weight) and the product (for the square): 25,000 elements each.
constexpr const char* kLine = "keeps for backward: at most 200 kB at a time, and on the host 0 kB";

TEST(ActivationReport, TellsWhatTheFirstStepKeeps) {
  const auto engine = engine_with(Json::object());
  EXPECT_THAT(lines_of([&] { update_once(*engine); }), HasSubstr(kLine));
  EXPECT_THAT(lines_of([&] { update_once(*engine); }), Not(HasSubstr("keeps for backward")));
}

TEST(ActivationReport, TellsItOfEachStepWithAMemoryBreakdown) {
  const auto engine = engine_with({{"memory_breakdown", true}});
  for (int step = 0; step < 3; ++step) EXPECT_THAT(lines_of([&] { update_once(*engine); }), HasSubstr(kLine));
}

TEST(ActivationReport, LeavesTheMeterOfAProgramItsBytes) {
  const auto engine = engine_with(Json::object());
  const auto meter = std::make_shared<activation::ActivationMeter>();
  const auto lines = lines_of([&] {
    const activation::CountActivations count(meter);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = engine->forward(at::ones({1000, 25}));
      EXPECT_EQ(meter->kept_bytes(), 200000) << "step " << step;
      engine->backward(loss);
      EXPECT_EQ(meter->kept_bytes(), 0) << "step " << step;
      engine->step();
    }
  });
  EXPECT_THAT(lines, HasSubstr(kLine));
}

TEST(ActivationReport, LeavesEvaluationOut) {
  const auto engine = engine_with(Json::object());
  const std::string lines = lines_of([&] {
    engine->eval();
    engine->forward(at::ones({9000, 25}));
    engine->train();
    update_once(*engine);
  });
  EXPECT_THAT(lines, HasSubstr(kLine));
}

}  // namespace
}  // namespace deepspeed::testing
