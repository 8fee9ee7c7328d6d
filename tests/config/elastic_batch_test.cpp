#include "deepspeed/config/tools/elastic_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/config/config.h"

#include "tests/support/error_of.h"

namespace deepspeed::config {
namespace {

using ::testing::ElementsAre;
using testing::error_of;

ElasticRules rules_of(std::vector<int64_t> micro, int64_t most, double version = 0.1) {
  ElasticRules rules;
  rules.micro_batch_sizes = std::move(micro);
  rules.max_train_batch_size = most;
  rules.version = version;
  return rules;
}

// The numbers are those of DeepSpeed's documentation and of its own run.
TEST(ElasticBatch, IsDivisibleByMostNumbersOfDevicesInVersion01) {
  ElasticRules rules = rules_of({8, 12, 16, 17}, 10000);
  rules.min_gpus = 32;
  rules.max_gpus = 1500;
  const ElasticBatch batch = elastic_batch(rules, 0);
  EXPECT_EQ(batch.train_batch_size, 9792);
  ASSERT_EQ(batch.valid_counts.size(), 23u);
  EXPECT_EQ(std::vector<int64_t>(batch.valid_counts.begin(), batch.valid_counts.begin() + 5),
            (std::vector<int64_t>{32, 34, 36, 48, 51}));
  EXPECT_EQ(batch.valid_counts.back(), 1224);
  EXPECT_EQ(batch.micro_batch_size, 0);
  EXPECT_EQ(elastic_batch(rules, 33).micro_batch_size, 0);
  EXPECT_EQ(elastic_batch(rules, 36).micro_batch_size, 17);

  const ElasticBatch small = elastic_batch(rules_of({2, 4, 6}, 2000), 0);
  EXPECT_EQ(small.train_batch_size, 1680);
  EXPECT_EQ(small.valid_counts.size(), 32u);
  EXPECT_EQ(small.valid_counts.back(), 840);

  rules = rules_of({8, 16, 24, 32}, 10000);
  rules.min_gpus = 32;
  rules.max_gpus = 1500;
  rules.prefer_larger_batch = false;
  const ElasticBatch smaller = elastic_batch(rules, 0);
  EXPECT_EQ(smaller.train_batch_size, 8640);
  EXPECT_EQ(smaller.valid_counts.size(), 16u);
  EXPECT_EQ(smaller.valid_counts.front(), 36);
}

TEST(ElasticBatch, CountsWholeMachinesInVersion02) {
  ElasticRules rules = rules_of({2, 4, 6}, 2000, 0.2);
  rules.num_gpus_per_node = 4;
  rules.model_parallel_size = 2;
  const ElasticBatch batch = elastic_batch(rules, 8);
  EXPECT_EQ(batch.train_batch_size % 2, 0);
  for (const int64_t count : batch.valid_counts) EXPECT_EQ(count % 2, 0);
  EXPECT_EQ(batch.train_batch_size, 1920);
  EXPECT_EQ(batch.micro_batch_size, 6);
  EXPECT_EQ(batch.train_batch_size / 4 % batch.micro_batch_size, 0);
  EXPECT_EQ(elastic_batch(rules, 7).micro_batch_size, 0);
  EXPECT_ERROR(ConfigError, elastic_batch_of_job(rules, 7), "7 devices do not fit", "2 times one of: ");
  rules.model_parallel_size = 3;
  EXPECT_ERROR(ConfigError, elastic_batch(rules, 8), "elasticity.model_parallel_size: got 3",
               "divisor of elasticity.num_gpus_per_node, 4");
}

TEST(ElasticBatch, ExistsForEveryNumberOfMachinesInVersion02) {
  const ElasticRules rules = rules_of({2, 4}, 100, 0.2);
  const ElasticBatch batch = elastic_batch(rules, 11);
  EXPECT_THAT(batch.valid_counts, ElementsAre(11));
  EXPECT_EQ(batch.train_batch_size, 88);
  EXPECT_EQ(batch.micro_batch_size, 4);
  EXPECT_ERROR(ConfigError, elastic_batch(rules, 51), "elasticity.max_train_batch_size: got 100",
               "51 devices");
}

TEST(ElasticBatch, HasTheLargestMicroBatchInVersion02EvenIfASmallerBatchIsPreferred) {
  ElasticRules rules = rules_of({2, 4, 8}, 100, 0.2);
  rules.max_gpus = 64;
  for (const bool prefers_larger : {true, false}) {
    rules.prefer_larger_batch = prefers_larger;
    const ElasticBatch batch = elastic_batch(rules, 6);
    EXPECT_EQ(batch.train_batch_size, 96);
    EXPECT_EQ(batch.micro_batch_size, 8);
    const ElasticBatch own = elastic_batch(rules, 5);
    EXPECT_EQ(own.train_batch_size, prefers_larger ? 100 : 80);
    EXPECT_EQ(own.micro_batch_size, prefers_larger ? 4 : 8);
  }
}

// Each micro batch is that of a data-parallel rank, and so is what the ranks of a model share.
TEST(ElasticBatch, IsDividedByDataParallelRanksInVersion02) {
  ElasticRules rules = rules_of({8}, 16, 0.2);
  rules.num_gpus_per_node = 2;
  rules.model_parallel_size = 2;
  const ElasticBatch batch = elastic_batch(rules, 4);
  EXPECT_EQ(batch.train_batch_size, 16);
  EXPECT_EQ(batch.micro_batch_size, 8);
  const DeepSpeedConfig config = load_config(
      R"({"elasticity": {"enabled": true, "max_train_batch_size": 16, "micro_batch_sizes": [8],
                         "num_gpus_per_node": 2, "model_parallel_size": 2}})",
      /*data_parallel_world_size=*/2);
  EXPECT_EQ(config.train_batch_size, 16);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 8);
  EXPECT_EQ(config.gradient_accumulation_steps, 1);
}

TEST(ElasticBatch, IsRefusedIfItFitsNoNumberOfDevices) {
  for (const double version : {0.1, 0.2}) {
    ElasticRules rules = rules_of({2, 4}, 100, version);
    rules.min_gpus = 1001;
    EXPECT_ERROR(ConfigError, elastic_batch(rules, 0), "no number of devices", "min_gpus, 1001",
                 "expected a wider range");
  }
}

TEST(ElasticBatch, NeedsItsGreatestBatchAndItsMicroBatches) {
  EXPECT_ERROR(ConfigError, load_config(R"({"elasticity": {"enabled": true, "micro_batch_sizes": [2]}})", 1),
               "elasticity.max_train_batch_size: is missing");
  EXPECT_ERROR(ConfigError, load_config(R"({"elasticity": {"enabled": true, "max_train_batch_size": 8}})", 1),
               "elasticity.micro_batch_sizes: is missing");
}

TEST(ElasticBatch, NamesTheKeyOfWhatDoesNotFit) {
  EXPECT_ERROR(ConfigError, elastic_batch(rules_of({2, 200}, 100), 0),
               "elasticity.micro_batch_sizes: got 200");
  EXPECT_ERROR(ConfigError, elastic_batch_of_job(rules_of({2}, 8), 3), "3 devices do not fit a batch of 8",
               "expected one of: 1, 2, 4");
  const auto read = [](const char* text) { ElasticRules::from_json(Json::parse(text)); };
  EXPECT_ERROR(ConfigError, read(R"({"micro_batch_sizes": []})"), "elasticity.micro_batch_sizes");
  EXPECT_ERROR(ConfigError, read(R"({"min_gpu": 3})"), "elasticity.min_gpu: unknown key",
               "did you mean 'elasticity.min_gpus'");
  EXPECT_ERROR(ConfigError, read(R"({"max_gpus": 0})"),
               "elasticity.max_gpus: got 0, expected a whole number of at least 1");
  EXPECT_ERROR(ConfigError, read(R"({"min_gpus": 3, "max_gpus": 2})"), "elasticity.min_gpus: got 3");
  EXPECT_ERROR(ConfigError, read(R"({"version": 0.3})"), "elasticity.version: got 0.3, expected 0.1 or 0.2");
  EXPECT_ERROR(ConfigError, read(R"({"version": 0.1, "model_parallel_size": 2})"),
               "elasticity.model_parallel_size");
}

TEST(ElasticBatch, ChoosesTheSizesOfAConfig) {
  const std::string section = R"("elasticity": {"enabled": true, "max_train_batch_size": 16,
                                 "micro_batch_sizes": [2], "version": 0.1})";
  const DeepSpeedConfig config = load_config("{" + section + "}", 2);
  EXPECT_EQ(config.train_batch_size, 12);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 2);
  EXPECT_EQ(config.gradient_accumulation_steps, 3);
  EXPECT_EQ(load_config("{" + section + "}", 3).gradient_accumulation_steps, 2);
  EXPECT_ERROR(ConfigError, load_config("{" + section + "}", 4), "4 devices do not fit");
  EXPECT_ERROR(ConfigError, load_config(R"({"train_batch_size": 8, )" + section + "}", 2),
               "train_batch_size: got 8 beside elasticity.enabled true, which chooses 12",
               "ignore_non_elastic_batch_info");
  EXPECT_EQ(to_json(load_config(to_json(config), 2)), to_json(config));
}

TEST(ElasticBatch, MustEqualTheSchedulersValues) {
  const std::string text =
      R"({"elasticity": {"enabled": true, "max_train_batch_size": 8, "micro_batch_sizes": [2], "version": 0.1}})";
  env::set("DEEPSPEED_ELASTICITY_CONFIG",
           R"({"max_train_batch_size": 8, "micro_batch_sizes": [4], "version": 0.1})");
  EXPECT_ERROR(ConfigError, load_config(text, 1), "elasticity.micro_batch_sizes: differs",
               "DEEPSPEED_ELASTICITY_CONFIG");
  env::set("DEEPSPEED_ELASTICITY_CONFIG",
           R"({"max_train_batch_size": 8, "micro_batch_sizes": [2], "version": 0.1, "queue": "a"})");
  EXPECT_NO_THROW(load_config(text, 1));
  env::set("DEEPSPEED_ELASTICITY_CONFIG", std::nullopt);
}

}  // namespace
}  // namespace deepspeed::config
