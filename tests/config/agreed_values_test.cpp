// What ranks compare of their configs.
#include "deepspeed/config/agreed_values.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/config/load.h"

namespace deepspeed::config {
namespace {

std::map<std::string, std::string> agreed(Json config) {
  config["train_batch_size"] = 8;
  std::map<std::string, std::string> values;
  for (const auto& [path, text] : agreed_values(load_config(config, 2))) {
    EXPECT_TRUE(values.emplace(path, text).second) << path << " stands there twice";
  }
  return values;
}

TEST(AgreedValues, AreResolvedAndHoldTheDefaults) {
  const auto values = agreed({{"gradient_clipping", 2},
                              {"optimizer", {{"type", "adamw"}, {"params", {{"lr", 0.5}}}}},
                              {"scheduler", {{"type", "WarmupLR"}}}});
  EXPECT_EQ(values.at("train_micro_batch_size_per_gpu"), "4");
  EXPECT_EQ(values.at("gradient_clipping"), "2.0");
  EXPECT_EQ(values.at("zero_optimization.stage"), "0");
  EXPECT_EQ(values.at("optimizer.type"), "\"AdamW\"");
  EXPECT_EQ(values.at("optimizer.params.lr"), "0.5");
  EXPECT_EQ(values.at("optimizer.params.betas"), "[0.9,0.999]");
  EXPECT_TRUE(values.contains("scheduler.params.warmup_num_steps"));
  EXPECT_FALSE(values.contains("optimizer.params"));
}

TEST(AgreedValues, AreTheSameHoweverTheConfigSpellsThem) {
  EXPECT_EQ(agreed({{"optimizer", {{"type", "adamw"}, {"params", {{"lr", 0.001}}}}},
                    {"bf16", {{"enabled", false}}}}),
            agreed({{"optimizer", {{"type", "AdamW"}}}, {"zero_optimization", {{"stage", 0}}}}));
}

TEST(AgreedValues, LeaveOutWhatIsARanksOwn) {
  const Json own = {{"log_level", "error"},
                    {"dump_state", true},
                    {"steps_per_print", 3},
                    {"aio", {{"block_size", 4096}}},
                    {"timers", {{"throughput", {{"enabled", false}}}}},
                    {"tensorboard", {{"output_path", "here"}}},
                    {"data_efficiency",
                     {{"data_sampling",
                       {{"num_workers", 2},
                        {"pin_memory", true},
                        {"dynamic_batching", {{"verbose", true}, {"metrics_path", "here"}}}}}}},
                    {"zero_optimization",
                     {{"stage", 2}, {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", "/disk"}}}}}};
  Json other = own;
  other.erase("log_level");
  other.erase("aio");
  other.erase("data_efficiency");
  other["steps_per_print"] = 5;
  other["tensorboard"]["output_path"] = "there";
  other["zero_optimization"]["offload_optimizer"]["nvme_path"] = "/tmp";
  EXPECT_EQ(agreed(own), agreed(other));
  EXPECT_EQ(agreed(own).at("zero_optimization.offload_optimizer.device"), "\"nvme\"");
}

}  // namespace
}  // namespace deepspeed::config
