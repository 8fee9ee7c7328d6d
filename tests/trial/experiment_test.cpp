// What is read from an experiment's YAML.
#include "deepspeed/trial/experiment/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/trial/search/sample.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

using ::testing::ElementsAre;
using testing::experiment_of;

constexpr const char* kSingle = "searcher: {name: single, metric: loss, max_length: 100}\n";

TEST(Experiment, ReadsAllKeys) {
  const Experiment read = experiment_of(R"(name: mnist
description: two layers
labels: [a, "7"]
entrypoint: ./train --fast
hyperparameters:
  global_batch_size: 64
  optimizer:
    name: {type: categorical, vals: [Adam, Lamb, 3]}
    lr: {type: log, minval: -5, maxval: 1.0, base: 10}
  layers: {type: int, minval: 1, maxval: 3}
  dropout: {type: double, minval: 0.2, maxval: 0.5, count: 4}
  fixed: {type: const, val: {type: Adam}}
  nothing: null
  sizes: [1, [2, x]]
searcher:
  name: adaptive_asha
  metric: accuracy
  smaller_is_better: false
  max_length: {epochs: 64}
  max_trials: 100
  divisor: 4.0
  max_rungs: 4
  mode: aggressive
  stop_once: true
  max_concurrent_trials: 8
min_validation_period: {batches: 10}
min_checkpoint_period: 20
checkpoint_policy: all
checkpoint_storage: {save_experiment_best: 2, save_trial_best: 3}
save_trial_latest: 4
max_restarts: 0
records_per_epoch: 60000
resources: {slots_per_trial: 2}
reproducibility: {experiment_seed: 4294967295}
scheduling_unit: 50
data: {path: /data, deep: {a: [1]}}
)");
  EXPECT_EQ(read.name, "mnist");
  EXPECT_EQ(read.description, "two layers");
  EXPECT_THAT(read.labels, ElementsAre("a", "7"));
  EXPECT_THAT(read.entrypoint, ElementsAre("sh", "-c", "./train --fast"));
  EXPECT_EQ(read.searcher.method, SearchMethod::kAdaptiveAsha);
  EXPECT_EQ(read.searcher.metric, "accuracy");
  EXPECT_FALSE(read.searcher.smaller_is_better);
  EXPECT_EQ(read.searcher.max_length, (Length{64, LengthUnit::kEpochs}));
  EXPECT_EQ(read.searcher.max_trials, 100);
  EXPECT_EQ(read.searcher.divisor, 4);
  EXPECT_EQ(read.searcher.rungs, 4);
  EXPECT_EQ(read.searcher.mode, AshaMode::kAggressive);
  EXPECT_TRUE(read.searcher.stop_once);
  EXPECT_EQ(read.searcher.max_concurrent_trials, 8);
  EXPECT_EQ(read.min_validation_period, (Length{10, LengthUnit::kBatches}));
  EXPECT_EQ(read.min_checkpoint_period, (Length{20, LengthUnit::kBatches}));
  EXPECT_EQ(read.checkpoint_policy, CheckpointPolicy::kAll);
  EXPECT_EQ(read.kept_checkpoints.experiment_best, 2);
  EXPECT_EQ(read.kept_checkpoints.trial_best, 3);
  EXPECT_EQ(read.kept_checkpoints.trial_latest, 4);
  EXPECT_EQ(read.max_restarts, 0);
  EXPECT_EQ(read.records_per_epoch, 60000);
  EXPECT_EQ(read.slots_per_trial, 2);
  EXPECT_EQ(read.seed, 4294967295u);
  EXPECT_EQ(read.scheduling_unit, 50);
  EXPECT_EQ(read.data, (Json{{"path", "/data"}, {"deep", {{"a", Json::array({1})}}}}));

  const Json values = sample_hyperparameters(read.hyperparameters, 1, 0);
  EXPECT_EQ(values["global_batch_size"], 64);
  EXPECT_EQ(values["fixed"], (Json{{"type", "Adam"}}));
  EXPECT_TRUE(values["nothing"].is_null());
  EXPECT_EQ(values["sizes"], Json::parse(R"([1, [2, "x"]])"));
  EXPECT_EQ(values["optimizer"].size(), 2u);
}

TEST(Experiment, HasDeterminedsDefaults) {
  const Experiment read = experiment_of(
      "searcher: {name: adaptive_asha, metric: loss, max_length: {batches: 1024}, max_trials: 1000}\n");
  EXPECT_TRUE(read.entrypoint.empty());
  EXPECT_TRUE(read.hyperparameters.empty());
  EXPECT_TRUE(read.searcher.smaller_is_better);
  EXPECT_EQ(read.searcher.mode, AshaMode::kStandard);
  EXPECT_EQ(read.searcher.divisor, 4);
  EXPECT_EQ(read.searcher.rungs, 5);
  EXPECT_FALSE(read.searcher.stop_once);
  EXPECT_EQ(read.searcher.max_concurrent_trials, 16);
  EXPECT_EQ(read.min_validation_period, Length{});
  EXPECT_EQ(read.checkpoint_policy, CheckpointPolicy::kBest);
  EXPECT_EQ(read.kept_checkpoints.experiment_best, 0);
  EXPECT_EQ(read.kept_checkpoints.trial_best, 1);
  EXPECT_EQ(read.kept_checkpoints.trial_latest, 1);
  EXPECT_EQ(read.max_restarts, 5);
  EXPECT_EQ(read.slots_per_trial, 1);
  EXPECT_EQ(read.scheduling_unit, 100);
  EXPECT_EQ(read.data, Json::object());
}

TEST(Experiment, TakesAKeyWithoutAValueForAbsent) {
  const Experiment read = experiment_of(std::string(kSingle) + "name:\ndata: ~\nmax_restarts: null\n");
  EXPECT_EQ(read.name, "");
  EXPECT_EQ(read.max_restarts, 5);
}

TEST(Experiment, KeepsACommandOfWords) {
  EXPECT_THAT(experiment_of(std::string(kSingle) + "entrypoint: [./train, a b]\n").entrypoint,
              ElementsAre("./train", "a b"));
}

TEST(Experiment, TakesTheTimeMetricForALength) {
  const Experiment read = experiment_of(
      "searcher: {name: adaptive_asha, metric: loss, time_metric: records, max_time: 64, max_trials: 4}\n");
  EXPECT_EQ(read.searcher.max_length, (Length{64, LengthUnit::kRecords}));
}

TEST(Experiment, LowersTheRungsToWhatTheTrialsReach) {
  const auto rungs = [](int trials) {
    return testing::search_of("name: adaptive_asha, max_length: 256, max_trials: " + std::to_string(trials))
        .searcher.rungs;
  };
  EXPECT_EQ(rungs(1), 1);
  EXPECT_EQ(rungs(3), 1);
  EXPECT_EQ(rungs(4), 2);
  EXPECT_EQ(rungs(63), 3);
  EXPECT_EQ(rungs(64), 4);
  EXPECT_EQ(rungs(5000), 5);
}

TEST(Experiment, CountsTheTrialsOfAGrid) {
  EXPECT_EQ(testing::search_of("name: grid, max_length: 5").searcher.max_trials, 7);
}

TEST(Experiment, TakesTextWithAnExponentForANumber) {
  const Experiment read = experiment_of(std::string(kSingle) +
                                        "hyperparameters:\n"
                                        "  a: 1e-3\n"
                                        "  b: {type: double, minval: 1e-4, maxval: 1E-2}\n"
                                        "  c: {type: categorical, vals: [2e1, 2e1]}\n"
                                        "  d: [x1e3, {e: +.5e+1}]\n"
                                        "  f: 1e\n");
  const Json values = sample_hyperparameters(read.hyperparameters, 0, 0);
  EXPECT_EQ(values["a"], 0.001);
  EXPECT_GE(values["b"].get<double>(), 1e-4);
  EXPECT_LE(values["b"].get<double>(), 1e-2);
  EXPECT_EQ(values["c"], 20.0);
  EXPECT_EQ(values["d"], Json::parse(R"(["x1e3", {"e": 5.0}])"));
  EXPECT_EQ(values["f"], "1e");
}

TEST(Experiment, IsReadFromAFile) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(read_experiment(folder.write("a.yaml", kSingle)).searcher.max_length.amount, 100);
  const std::string file = folder.write("b.yaml", "searcher: {name: 3}\n").string();
  EXPECT_ERROR(ConfigError, read_experiment(file), file + " line 1: searcher.name: got 3");
  EXPECT_ERROR(IoError, read_experiment(folder / "none.yaml"), "none.yaml");
}

TEST(Experiment, HasOneDigestForEachMeaning) {
  const std::string text =
      "hyperparameters: {a: 1, b: {type: int, minval: 0, maxval: 3}}\n"
      "searcher: {name: random, metric: loss, max_length: 4, max_trials: 2}\n";
  const auto digest = [](const std::string& yaml) { return digest_of(experiment_of(yaml)); };
  const std::string own = digest(text);
  EXPECT_EQ(own.size(), 64u);
  EXPECT_EQ(own,
            digest("searcher: {max_trials: 2, name: random, max_length: {batches: 4}, metric: loss}\n"
                   "hyperparameters: {b: {maxval: 3, minval: 0, type: int}, a: {type: const, val: 1}}\n"));
  EXPECT_EQ(own, digest(text + "name: x\nmax_restarts: 2\nentrypoint: y\nmin_checkpoint_period: 3\n"));
  EXPECT_EQ(own, digest(text + "reproducibility: {experiment_seed: 3}\n"));
  EXPECT_NE(own, digest(text + "data: {a: 1}\n"));
  EXPECT_NE(own, digest(text + "records_per_epoch: 3\n"));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"a: 1", "a: 2"},
                                                                                 {"maxval: 3", "maxval: 4"},
                                                                                 {"length: 4", "length: 5"},
                                                                                 {"b: {", "c: {"},
                                                                                 {"loss", "error"},
                                                                                 {"trials: 2", "trials: 3"},
                                                                                 {"int", "double"}}) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    EXPECT_NE(own, digest(other)) << to;
  }
}

TEST(Length, IsCountedInBatches) {
  EXPECT_EQ(batches_of({7, LengthUnit::kBatches}, 0, 0), 7);
  EXPECT_EQ(batches_of({100, LengthUnit::kRecords}, 0, 32), 3);
  EXPECT_EQ(batches_of({10, LengthUnit::kRecords}, 0, 32), 1);
  EXPECT_EQ(batches_of({0, LengthUnit::kEpochs}, 0, 0), 0);
  EXPECT_EQ(batches_of({3, LengthUnit::kEpochs}, 50, 16), 9);
  EXPECT_ERROR(UsageError, batches_of({3, LengthUnit::kEpochs}, 0, 16), "3 epochs", "0 records an epoch");
  EXPECT_ERROR(UsageError, batches_of({3, LengthUnit::kRecords}, 0, 0), "3 records", "0 records a batch");
  EXPECT_ERROR(UsageError, batches_of({kMaxWhole, LengthUnit::kEpochs}, kMaxWhole, 1), "64 bits");
}

}  // namespace
}  // namespace deepspeed::trial
