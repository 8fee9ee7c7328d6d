// States that are moved to the host for a while, on ranks whose device is the host.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json offloading_config(int stage, Json patch = Json::object()) {
  Json config = {{"train_micro_batch_size_per_gpu", 4},
                 {"log_level", "error"},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"zero_optimization", {{"stage", stage}}}};
  config.merge_patch(patch);
  return config;
}

auto engine_of(comm::World& world, const Json& config) {
  return initialize(std::make_shared<OddNet>(), {.config = config, .world = world}).engine;
}

void train(DeepSpeedEngine<OddNet>& engine, int64_t step) {
  const auto [inputs, targets] = odd_batch(8 * step + 4 * engine.rank(), 4);
  engine.backward(engine.forward(inputs, targets));
  engine.step();
}

std::vector<at::Tensor> weights_of(OddNet& model) {
  const zero::GatheredParameters gathered(model.parameters());
  std::vector<at::Tensor> weights;
  for (const at::Tensor& param : model.parameters()) weights.push_back(param.detach().clone());
  return weights;
}

class OffloadStates : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, OffloadStates, ::testing::Values(1, 2, 3));

TEST_P(OffloadStates, TrainOnFromTheSameValues) {
  run_ranks(2, [](comm::World& world) {
    const auto engine = engine_of(world, offloading_config(GetParam()));
    const auto other = engine_of(world, offloading_config(GetParam()));
    for (int64_t step = 0; step < 3; ++step) {
      train(*engine, step);
      train(*other, step);
      engine->offload_states();
      engine->reload_states();
      engine->offload_states(
          {.include = {{OffloadStateTypeEnum::optim_states, OffloadStateTypeEnum::lp_params}},
           .pin_memory = false,
           .non_blocking = true});
      engine->reload_states(/*non_blocking=*/true);
      engine->offload_states({.device = OffloadDeviceEnum::none});
    }
    const auto weights = weights_of(engine->module()), expected = weights_of(other->module());
    for (size_t index = 0; index < weights.size(); ++index)
      EXPECT_TRUE(weights[index].equal(expected[index])) << index;
  });
}

TEST(RefusedOffloadStates, AreThoseThatDeepSpeedRefuses) {
  run_ranks(1, [](comm::World& world) {
    const auto refusal = [&](const Json& config, const OffloadStatesOptions& options = {}) {
      const auto engine = engine_of(world, config);
      return error_of<UsageError>([&] { engine->offload_states(options); });
    };
    EXPECT_THAT(refusal(offloading_config(0)),
                AllOf(HasSubstr("zero_optimization.stage is 0"), HasSubstr("expected 1, 2 or 3")));
    EXPECT_THAT(refusal(offloading_config(3), {.device = OffloadDeviceEnum::nvme}), HasSubstr("got nvme"));
    EXPECT_THAT(
        refusal(offloading_config(3, {{"zero_optimization", {{"offload_param", {{"device", "cpu"}}}}}})),
        AllOf(HasSubstr("offload_param.device is \"cpu\""), HasSubstr("expected \"none\"")));
    EXPECT_THAT(refusal(offloading_config(3, {{"optimizer", nullptr}})), HasSubstr("needs an optimizer"));
  });
}

}  // namespace
}  // namespace deepspeed::testing
