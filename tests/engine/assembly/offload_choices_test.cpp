// Which optimizers may be offloaded, and under which class they are then.
#include <torch/optim/adamw.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using ::testing::AllOf;
using testing::basic;
using testing::error_of;
using ::testing::HasSubstr;
using testing::make_engine;

Json offloaded(Json patch = Json::object()) {
  Json config = {{"zero_optimization", {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}},
                 {"zero_allow_untested_optimizer", true}};
  config.merge_patch(patch);
  return basic(config);
}

Json of_type(const char* type) { return {{"optimizer", {{"type", type}}}}; }

template <class MakeOptimizer>
auto engine_with(const Json& patch, const MakeOptimizer& make) {
  Json config = offloaded(patch);
  config.erase("optimizer");
  const auto net = std::make_shared<testing::OddNet>();
  return initialize(net, {.config = config, .optimizer = make(*net)}).engine;
}

std::shared_ptr<torch::optim::Optimizer> torch_adamw(const testing::OddNet& net) {
  return std::make_shared<torch::optim::AdamW>(net.parameters());
}

std::shared_ptr<torch::optim::Optimizer> cpu_adam(const testing::OddNet& net) {
  return std::make_shared<DeepSpeedCPUAdam>(net.parameters());
}

TEST(OptimizerOffload, StepsTheClassesOfTheHost) {
  const auto name_of = [](const Json& patch) {
    return make_engine(offloaded(patch))->optimizer()->base_optimizer().name();
  };
  EXPECT_EQ(name_of(of_type("AdamW")), "DeepSpeedCPUAdam");
  EXPECT_EQ(name_of(of_type("Lion")), "DeepSpeedCPULion");
  EXPECT_EQ(name_of(of_type("Adagrad")), "Adagrad");
  EXPECT_EQ(make_engine(basic())->optimizer()->base_optimizer().name(), "FusedAdam");
}

TEST(OptimizerOffload, InsistsOnAClassOfTheHostUnlessToldOtherwise) {
  EXPECT_THAT(error_of<ConfigError>([] { engine_with(Json::object(), torch_adamw); }),
              AllOf(HasSubstr("class AdamW"), HasSubstr("zero_force_ds_cpu_optimizer = false")));
  testing::train_step(*engine_with({{"zero_force_ds_cpu_optimizer", false}}, torch_adamw));
  testing::train_step(*engine_with(Json::object(), cpu_adam));
}

TEST(OptimizerOffload, TakesSixteenBitMastersOnlyWithAdam) {
  Json patch = of_type("Lion");
  patch["fp16"] = {{"enabled", true}, {"fp16_master_weights_and_grads", true}};
  EXPECT_THAT(error_of<ConfigError>([&] { make_engine(offloaded(patch)); }),
              AllOf(HasSubstr("fp16.fp16_master_weights_and_grads: got true with DeepSpeedCPULion"),
                    HasSubstr("expected DeepSpeedCPUAdam")));
}

}  // namespace
}  // namespace deepspeed
