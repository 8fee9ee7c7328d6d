#include "deepspeed/config/training_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/config/load.h"
#include "tests/support/error_of.h"

namespace deepspeed::config {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

/// A program's own config, with one of the library's inside.
struct ModelConfig : ConfigOf<ModelConfig> {
  int64_t num_layers = 12;
  double dropout = 0.1;
  std::string activation = "gelu";
  std::optional<int64_t> hidden_size;
  FP16Config fp16;

  ModelConfig(Pairs pairs = {}) { update(pairs); }
  static const Table<ModelConfig>& table() {
    using C = ModelConfig;
    static const Table<C> table({
        entry("num_layers", &C::num_layers, "Layers.", {at_least(1)}),
        entry("dropout", &C::dropout, "Of activations.", {between(0, 1)}),
        entry("activation", &C::activation, "Its name.", {one_of({"gelu", "relu"})}),
        entry("hidden_size", &C::hidden_size, "The width.", {alias("width")}),
        section_entry("fp16", &C::fp16, FP16Config::table(), "Training in float16."),
    });
    return table;
  }

 protected:
  Parts parts() override { return {{"fp16", &fp16}}; }
  void resolve_own(int64_t) override {
    if (!hidden_size) hidden_size = 64 * num_layers;
  }
  void check_own(int64_t) const override {
    if (*hidden_size % num_layers != 0) raise<ConfigError>("hidden_size: got ", *hidden_size);
  }
};

TEST(KeyValueConfig, HoldsAnyPairs) {
  Config config{{"name", "first"}, {"sizes", {1, 2}}};
  EXPECT_EQ(config["name"], "first");
  EXPECT_EQ(config["sizes"][1], 2);
  config.set("name", "second");
  EXPECT_EQ(config["name"], "second");
  EXPECT_TRUE(config.contains("sizes"));
  EXPECT_FALSE(config.contains("size"));
  EXPECT_THAT(error_of<ConfigError>([&] { config["size"]; }), HasSubstr("did you mean 'sizes'?"));
  EXPECT_TRUE(config.is_valid());
  const Json dict = {{"name", "tygra"}, {"color", "orange"}};
  EXPECT_EQ(Config::from_dict(dict).to_dict(), dict);
  EXPECT_THAT(error_of<ConfigError>([] { Config::from_dict(7); }),
              HasSubstr("got 7, expected key/value pairs"));
}

TEST(KeyValueConfig, IsReadByMemberAndByKey) {
  const ModelConfig config{{"num_layers", 24}, {"width", "1536"}, {"fp16", {{"enabled", true}}}};
  EXPECT_EQ(config.num_layers, 24);
  EXPECT_EQ(config["num_layers"], 24);
  EXPECT_EQ(config.hidden_size, 1536);
  EXPECT_EQ(config["width"], 1536);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_EQ(config["fp16"]["enabled"], true);
  EXPECT_EQ(config.dropout, 0.1);
  EXPECT_EQ(ModelConfig::from_dict(config.to_dict()).to_dict(), config.to_dict());
}

TEST(KeyValueConfig, FollowsItsMembers) {
  ModelConfig config;
  config.num_layers = 3;
  EXPECT_EQ(config["num_layers"], 3);
  config.set("num_layers", 5);
  EXPECT_EQ(config.num_layers, 5);
  const ModelConfig copy = config;
  config.num_layers = 7;
  EXPECT_EQ(copy["num_layers"], 5);
}

TEST(KeyValueConfig, RefusesWhatItsKeysDoNotTake) {
  EXPECT_THAT(error_of<ConfigError>([] {
                ModelConfig{{"num_layer", 1}};
              }),
              HasSubstr("did you mean 'num_layers'?"));
  EXPECT_THAT(error_of<ConfigError>([] {
                ModelConfig{{"num_layers", 0}};
              }),
              HasSubstr("num_layers: got 0, expected a whole number of at least 1"));
  EXPECT_THAT(error_of<ConfigError>([] {
                ModelConfig{{"activation", "tanh"}};
              }),
              HasSubstr("one of gelu, relu"));
  EXPECT_THAT(error_of<ConfigError>([] {
                ModelConfig{{"fp16", {{"clip", "x"}}}};
              }),
              HasSubstr("fp16.clip: got \"x\""));
  EXPECT_THAT(error_of<ConfigError>([] {
                ModelConfig{{"dropout", 0.0}, {"dropout", 0.5}};
              }),
              HasSubstr("given twice"));
  const ModelConfig config;
  EXPECT_THAT(error_of<ConfigError>([&] { config["fp6"]; }), HasSubstr("did you mean 'fp16'?"));
  EXPECT_TRUE(config.contains("width"));
  EXPECT_FALSE(config.contains("fp6"));
}

TEST(KeyValueConfig, IsResolvedAndCheckedWithTheConfigsInside) {
  ModelConfig config{{"num_layers", 2}};
  config.resolve();
  EXPECT_EQ(config.hidden_size, 128);
  EXPECT_TRUE(config.is_valid());
  config.fp16.clip = -1;
  EXPECT_FALSE(config.is_valid());
  EXPECT_THAT(error_of<ConfigError>([&] { config.validate(); }), HasSubstr("[config] fp16.clip: got -1"));
  config.fp16.clip = 0;
  config.hidden_size = 3;
  EXPECT_THAT(error_of<ConfigError>([&] { config.validate(); }), HasSubstr("[config] hidden_size: got 3"));
}

TEST(BatchConfig, CompletesAnyTwoOfItsNumbers) {
  const auto resolved = [](BatchConfig batch) {
    batch.resolve(2);
    return std::vector<int64_t>{batch.train_batch_size.value_or(-1),
                                batch.train_micro_batch_size_per_gpu.value_or(-1),
                                batch.gradient_accumulation_steps.value_or(-1)};
  };
  const std::vector<int64_t> whole = {32, 4, 4};
  EXPECT_EQ(resolved({{"train_batch_size", 32}, {"train_micro_batch_size_per_gpu", 4}}), whole);
  EXPECT_EQ(resolved({{"train_batch_size", 32}, {"gradient_accumulation_steps", 4}}), whole);
  EXPECT_EQ(resolved({{"micro_batch_size", 4}, {"gradient_accumulation_steps", 4}}), whole);
  EXPECT_EQ(resolved({{"train_batch_size", 32}}), (std::vector<int64_t>{32, 16, 1}));
  EXPECT_EQ(resolved({{"micro_batch_size", 16}}), (std::vector<int64_t>{32, 16, 1}));
  EXPECT_EQ(resolved({{"gradient_accumulation_steps", 4}}), (std::vector<int64_t>{-1, -1, 4}));
}

TEST(BatchConfig, IsValidIfItsNumbersFit) {
  EXPECT_FALSE(BatchConfig().is_valid());
  EXPECT_TRUE(BatchConfig({{"train_batch_size", 32}, {"micro_batch_size", 4}}).is_valid(8));
  EXPECT_FALSE(BatchConfig({{"train_batch_size", 33}, {"micro_batch_size", 4}}).is_valid(2));
  EXPECT_FALSE(BatchConfig({{"train_batch_size", -8}}).is_valid());
  EXPECT_FALSE(BatchConfig({{"train_batch_size", 8}, {"gradient_accumulation_steps", 0}}).is_valid());
}

TEST(TrainingConfig, ChecksBothOfItsParts) {
  TrainingConfig training;
  EXPECT_FALSE(training.batch.train_batch_size.has_value());
  EXPECT_FALSE(training.fp16.enabled);
  EXPECT_EQ(training.fp16.clip, 1.0);
  EXPECT_THAT(error_of<ConfigError>([&] { training.validate(); }),
              HasSubstr("[config] batch.train_batch_size: got neither"));
  training.batch = BatchConfig{{"train_batch_size", 32}};
  EXPECT_TRUE(training.is_valid(4));
  EXPECT_EQ(training.batch.train_micro_batch_size_per_gpu, 8);
  training.fp16 = FP16Config{{"enabled", true}, {"clip", -0.5}};
  EXPECT_FALSE(training.is_valid(4));
  EXPECT_THAT(error_of<ConfigError>([&] { training.validate(4); }),
              HasSubstr("[config] fp16.clip: got -0.5"));
}

TEST(TrainingConfig, BecomesAJsonConfig) {
  const auto training =
      TrainingConfig::from_dict({{"batch", {{"train_batch_size", 32}, {"micro_batch_size", 4}}},
                                 {"fp16", {{"enabled", true}, {"clip", 0.5}}}});
  const DeepSpeedConfig config = load_config(training.to_ds_config(), 2);
  EXPECT_EQ(config.train_batch_size, 32);
  EXPECT_EQ(config.gradient_accumulation_steps, 4);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_THAT(error_of<ConfigError>([] {
                TrainingConfig{{"batch", {{"train_batchsize", 1}}}};
              }),
              HasSubstr("[config] batch.train_batchsize: unknown key"));
}

}  // namespace
}  // namespace deepspeed::config
