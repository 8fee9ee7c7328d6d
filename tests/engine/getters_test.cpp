// What the engine gives of its config, and the getters whose values follow from it.
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "tests/engine/method_table.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using testing::kMethodsConfig;
using testing::make_engine;
using testing::MethodRow;
using testing::TestEngine;

template <class Result, class Class, class Expected>
MethodRow gives(const char* method, Result (Class::*getter)() const, Expected expected) {
  return {method, [=](TestEngine& engine) { EXPECT_EQ((engine.*getter)(), expected); }};
}

const std::vector<MethodRow> kGetters = {
#define ROW(method, expected) gives(#method, &TestEngine::method, expected)
    ROW(get_pld_theta, std::nullopt),
    ROW(torch_autocast_enabled, false),
    ROW(get_batch_info, std::make_tuple(8, 4, 2)),
    ROW(get_lr, std::vector<double>{0.0}),
    ROW(get_mom, (std::vector<std::pair<double, double>>{{0.8, 0.95}})),
    ROW(get_type, std::vector<std::string>{""}),
    ROW(get_compile_time, 0.0),
    ROW(get_global_grad_norm, std::nullopt),
    ROW(loss_scale, 1.0),
    ROW(rank, 0),
    ROW(dp_world_size, 1),
    ROW(broadcast_src_rank, 0),
    ROW(get_data_parallel_rank, 0),
    ROW(get_model_parallel_rank, 0),
    ROW(get_tensor_parallel_rank, 0),
    ROW(get_wall_clock_timers, (std::map<std::string, double>())),
    ROW(preemption_requested, false),
    ROW(device, at::Device(at::kCPU)),
#undef ROW
    {"torch_autocast_dtype",
     [](TestEngine& e) {
       EXPECT_ERROR(UsageError, e.torch_autocast_dtype(),
                    "torch_autocast_dtype(): torch_autocast.enabled is false");
     }},
    {"config", [](TestEngine& e) { EXPECT_EQ(e.config().raw, kMethodsConfig); }},
};

TEST(EngineGetters, GiveWhatTheConfigLeadsTo) { testing::check_each(kGetters); }

// Batch sizes that the config does not say, and defaults, read as resolved.
TEST(EngineConfig, IsResolved) {
  const auto engine = make_engine(kMethodsConfig);
  const auto& config = engine->config();
  EXPECT_EQ(config.train_batch_size, 8);
  EXPECT_EQ(config.zero_optimization.stage, 1);
  EXPECT_EQ(config.fp16.initial_scale_power, 16);
  EXPECT_EQ(config.optimizer->type, "AdamW");
  engine->set_train_batch_size(16);
  EXPECT_EQ(config.train_batch_size, 16);
  EXPECT_EQ(config.gradient_accumulation_steps, 4);
}

// The getters follow the config: with other values they give others.
TEST(EngineGetters, FollowTheConfig) {
  const Json other = {{"train_batch_size", 4},
                      {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}, {"momentum", 0.9}}}}},
                      {"fp16", {{"enabled", true}, {"initial_scale_power", 4}}},
                      {"zero_allow_untested_optimizer", true},
                      {"zero_optimization", {{"stage", 2}}}};
  const auto engine = make_engine(other);
  EXPECT_EQ(engine->loss_scale(), 16.0);
  EXPECT_EQ(engine->get_mom()[0].first, 0.9);
}

TEST(ProgressiveLayerDrop, KeepsFewerLayersWithEachStep) {
  const Json section = {{"enabled", true}, {"theta", 0.5}, {"gamma", 0.1}};
  const auto engine = make_engine(testing::basic({{"progressive_layer_drop", section}}));
  for (const double expected : {1.0, 1.0, 0.5 * std::exp(-0.1) + 0.5, 0.5 * std::exp(-0.2) + 0.5}) {
    EXPECT_DOUBLE_EQ(engine->get_pld_theta().value(), expected);
    testing::train_step(*engine);
  }
}

}  // namespace
}  // namespace deepspeed
