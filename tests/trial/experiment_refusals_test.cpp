// Which experiments are refused: each with its file, line and key, and the way out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/trial/experiment/experiment.h"

#include "tests/support/error_of.h"
#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::experiment_of;
using ::testing::HasSubstr;

constexpr const char* kSingleSearch = "searcher: {name: single, metric: loss, max_length: 100}\n";

std::string refusal(const std::string& yaml) {
  return error_of<ConfigError>([&] { experiment_of(yaml); });
}

/// Is an experiment with a fault: its lines, which follow a valid searcher, and parts of the error.
struct BadLines {
  const char* yaml;
  std::vector<const char*> parts;
};

void expect_refusals(const std::string& before, const std::vector<BadLines>& rows) {
  for (const BadLines& row : rows) {
    const std::string text = refusal(before + row.yaml);
    for (const char* part : row.parts) EXPECT_THAT(text, HasSubstr(part)) << row.yaml;
  }
}

TEST(ExperimentRefusals, NameFileLineAndKeyOfAWrongValue) {
  expect_refusals(
      kSingleSearch,
      {
          {"name: 7\n", {"[config] experiment.yaml line 2: name: got 7, expected text"}},
          {"labels: a\n", {"line 2: labels: got \"a\", expected a list of texts"}},
          {"labels:\n- a\n- 3\n", {"line 4: labels[1]: got 3, expected text"}},
          {"entrypoint: {a: 1}\n", {"line 2: entrypoint: got {\"a\":1}, expected a command"}},
          {"entrypoint: []\n", {"line 2: entrypoint: got [], expected a command"}},
          {"data: [1]\n", {"line 2: data: got [1], expected a map"}},
          {"max_restarts: -1\n", {"line 2: max_restarts: got -1, expected a whole number of 0 or more"}},
          {"max_restarts: 1.5\n", {"line 2: max_restarts: got 1.5"}},
          {"max_restarts: true\n", {"line 2: max_restarts: got true"}},
          {"scheduling_unit: 0\n", {"line 2: scheduling_unit: got 0, expected a whole number of 1 or more"}},
          {"resources: 3\n", {"line 2: resources: got 3, expected a map with keys such as slots_per_trial"}},
          {"\nresources:\n  slots_per_trial: two\n", {"line 4: resources.slots_per_trial: got \"two\""}},
          {"reproducibility:\n  experiment_seed: 4294967296\n",
           {"line 3: reproducibility.experiment_seed: got 4294967296, expected a whole number from 0 to"}},
          {"checkpoint_policy: worst\n",
           {"line 2: checkpoint_policy: got \"worst\", expected best, all or none"}},
          {"save_trial_best: -2\n", {"line 2: save_trial_best: got -2"}},
          {"checkpoint_storage: {save_trial_best: 1}\nsave_trial_best: 1\n",
           {"line 3: save_trial_best: given here and in checkpoint_storage, expected it once"}},
          {"min_validation_period: x\n",
           {"line 2: min_validation_period: got \"x\", expected a whole number of batches, or {batches: N}"}},
          {"min_validation_period: {batches: 1, epochs: 2}\n", {"line 2: min_validation_period: got {"}},
          {"min_validation_period: {hours: 1}\n", {"line 2: min_validation_period.hours: unknown key"}},
          {"min_validation_period: {batches: -1}\n", {"line 2: min_validation_period.batches: got -1"}},
          {"min_checkpoint_period: {epochs: 1}\n",
           {"line 2: min_checkpoint_period: got 1 epochs without records_per_epoch, expected that key"}},
      });
}

TEST(ExperimentRefusals, NameFileLineAndKeyOfAWrongHyperparameter) {
  expect_refusals(
      std::string(kSingleSearch) + "hyperparameters:\n",
      {
          {"  a: {type: int, maxval: 3}\n",
           {"line 3: hyperparameters.a.minval: missing, expected a whole number"}},
          {"  a: {type: int, minval: 3}\n", {"line 3: hyperparameters.a.maxval: missing"}},
          {"  a:\n    type: int\n    minval: 0.5\n    maxval: 2\n",
           {"line 5: hyperparameters.a.minval: got 0.5"}},
          {"  a: {type: int, minval: 3, maxval: 3}\n",
           {"line 3: hyperparameters.a.minval: got 3, expected less than maxval, which is 3"}},
          {"  a: {type: int, minval: -9007199254740993, maxval: 3}\n", {"hyperparameters.a.minval: got -90"}},
          {"  a: {b: {c: {type: double, minval: 3, maxval: 1}}}\n",
           {"line 3: hyperparameters.a.b.c.minval: got 3.0, expected less than maxval, which is 1.0"}},
          {"  a: {type: double, minval: .nan, maxval: 1}\n", {"hyperparameters.a.minval: got NaN"}},
          {"  a: {type: double, minval: 0, maxval: .inf}\n", {"hyperparameters.a.maxval: got Infinity"}},
          {"  a: {type: double, minval: -1.7e+308, maxval: 1.7e+308}\n",
           {"hyperparameters.a.minval: the range"}},
          {"  a: {type: log, minval: -1, maxval: 1}\n", {"line 3: hyperparameters.a.base: missing"}},
          {"  a: {type: log, minval: -1, maxval: 1, base: 0}\n",
           {"hyperparameters.a.base: got 0, expected a number above"}},
          {"  a: {type: log, minval: 1, maxval: 400, base: 10}\n",
           {"hyperparameters.a.maxval: got 400.0, and base 10.0 to this power is no number"}},
          {"  a: {type: categorical}\n", {"line 3: hyperparameters.a.vals: missing, expected a list"}},
          {"  a: {type: categorical, vals: []}\n",
           {"hyperparameters.a.vals: got [], expected a list of at least one"}},
          {"  a: {type: const}\n", {"hyperparameters.a.val: missing, expected a value"}},
          {"  a: {type: const, val: 1, minval: 2}\n", {"hyperparameters.a.minval: unknown key"}},
          {"  a: {type: double, minval: 1, maxvall: 2}\n",
           {"hyperparameters.a.maxvall: unknown key; did you mean 'maxval'"}},
          {"  a: {type: double, minval: 1, maxval: 2, count: 0}\n", {"hyperparameters.a.count: got 0"}},
          {"  a: {type: dubble, minval: 1, maxval: 2}\n",
           {"line 3: hyperparameters.a.type: got \"dubble\", expected const, int, double, log or categorical",
            "did you mean 'double'?"}},
          {"  optimizer: {type: Adam, lr: 1}\n",
           {"hyperparameters.optimizer.type: got \"Adam\"", "{type: const, val:"}},
          {"  type: int\n", {"line 3: hyperparameters.type: the section itself has no type"}},
          {"  - 1\n", {"hyperparameters: got [1], expected a map of names to values"}},
      });
}

TEST(ExperimentRefusals, NameFileLineAndKeyOfAWrongSearcher) {
  expect_refusals(
      "searcher:\n  metric: loss\n  ",
      {
          {"max_length: 3\n", {"searcher.name: missing, expected single, random, grid or adaptive_asha"}},
          {"name: simple\n",
           {"line 3: searcher.name: got \"simple\", expected single, random, grid or adaptive_asha"}},
          {"name: sync_halving\n", {"line 3: searcher.name: got", "adaptive_asha with mode: sync"}},
          {"name: async_halving\n", {"adaptive_asha with mode: aggressive"}},
          {"name: single\n", {"searcher.max_length: missing, expected a whole number of batches"}},
          {"name: single\n  max_length: \"x\"\n",
           {"experiment.yaml line 4: searcher.max_length: got \"x\", expected a whole number of batches"}},
          {"name: single\n  max_length: 0\n", {"line 4: searcher.max_length: got 0"}},
          {"name: single\n  max_length: {epochs: 3}\n",
           {"line 4: searcher.max_length: got 3 epochs without records_per_epoch"}},
          {"name: single\n  max_length: 3\n  max_trials: 1\n",
           {"line 5: searcher.max_trials: the searcher single has no such key", "random, adaptive_asha"}},
          {"name: random\n  max_length: 3\n",
           {"searcher.max_trials: missing, expected the number of trials"}},
          {"name: random\n  max_length: 3\n  max_trials: 100001\n", {"searcher.max_trials: got 100001"}},
          {"name: random\n  max_length: 3\n  max_trials: 2\n  mode: sync\n",
           {"line 6: searcher.mode: the searcher random has no such key", "belongs to adaptive_asha"}},
          {"name: random\n  time_metric: batches\n",
           {"searcher.time_metric: the searcher random has no such key"}},
          {"name: adaptive_asha\n  max_length: 3\n  max_trials: 2\n  mode: sinc\n",
           {"line 6: searcher.mode: got \"sinc\", expected aggressive, standard, conservative or sync"}},
          {"name: adaptive_asha\n  max_length: 3\n  max_trials: 2\n  divisor: 1\n",
           {"searcher.divisor: got 1"}},
          {"name: adaptive_asha\n  max_length: 3\n  max_trials: 2\n  divisor: 2.5\n",
           {"searcher.divisor: got 2.5"}},
          {"name: adaptive_asha\n  max_length: 3\n  max_trials: 2\n  max_rungs: 0\n",
           {"searcher.max_rungs: got 0"}},
          {"name: adaptive_asha\n  max_length: 4\n  max_trials: 2\n  mode: sync\n  stop_once: true\n",
           {"line 7: searcher.stop_once: got true with mode: sync"}},
          {"name: adaptive_asha\n  max_length: 3\n  max_trials: 2\n  time_metric: batches\n  max_time: 3\n",
           {"line 4: searcher.max_length: given beside time_metric"}},
          {"name: adaptive_asha\n  max_trials: 2\n  time_metric: seconds\n  max_time: 3\n",
           {"line 5: searcher.time_metric: got \"seconds\", expected batches, records or epochs"}},
          {"name: adaptive_asha\n  max_trials: 2\n  time_metric: epochs\n", {"searcher.max_time: missing"}},
          {"name: adaptive_asha\n  max_trials: 2\n  time_metric: epochs\n  max_time: 2\n",
           {"line 6: searcher.max_time: got 2 epochs without records_per_epoch"}},
          {"name: single\n  max_length: 2\n  smaller_is_better: 1\n", {"searcher.smaller_is_better: got 1"}},
      });
  EXPECT_THAT(refusal("searcher: {name: single, max_length: 2}\n"), HasSubstr("searcher.metric: missing"));
  EXPECT_THAT(refusal("name: x\n"), HasSubstr("experiment.yaml: searcher: missing"));
  EXPECT_THAT(refusal(""), HasSubstr("experiment.yaml: got nothing, expected a map"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("experiment.yaml: got [1], expected a map"));
}

TEST(ExperimentRefusals, SayWhichLengthOrRungsWouldDo) {
  const auto text = [](const std::string& searcher) {
    return error_of<ConfigError>([&] { testing::search_of("name: adaptive_asha, " + searcher); });
  };
  EXPECT_THAT(
      text("max_length: 100, max_trials: 256"),
      AllOf(
          HasSubstr("line 2: searcher.max_length: got 100 batches, which 5 rungs of divisor 4 cut into 256"),
          HasSubstr("a multiple of 256, such as 256; or max_rungs: 2")));
  EXPECT_THAT(text("max_length: 937, max_trials: 16"),
              HasSubstr("a multiple of 16, such as 928 or 944; or max_rungs: 1"));
  EXPECT_THAT(text("max_length: 24, max_trials: 99, divisor: 2, max_rungs: 5"), HasSubstr("max_rungs: 4"));
  EXPECT_EQ(text("max_length: 24, max_trials: 99, divisor: 2, max_rungs: 4"), "no error");
}

TEST(ExperimentRefusals, AskForTheCountsOfAGrid) {
  const std::string grid = "searcher: {name: grid, metric: loss, max_length: 1}\nhyperparameters:\n";
  for (const char* range : {"{type: double, minval: 0, maxval: 1}", "{type: int, minval: 0, maxval: 1}",
                            "{type: log, base: 2, minval: 0, maxval: 1}"}) {
    EXPECT_THAT(
        refusal(grid + "  a: {b: " + range + "}\n"),
        HasSubstr(
            "experiment.yaml line 3: hyperparameters.a.b.count: missing, expected the number of points"));
  }
  EXPECT_THAT(refusal(grid + "  a: {type: double, minval: 0, maxval: 1, count: 1000}\n"
                             "  b: {type: double, minval: 0, maxval: 1, count: 101}\n"),
              HasSubstr("hyperparameters: the grid has more than 100000 points"));
}

TEST(ExperimentRefusals, NameTheNearestKnownKey) {
  EXPECT_THAT(refusal(std::string(kSingleSearch) + "max_restart: 1\n"),
              HasSubstr("experiment.yaml line 2: max_restart: unknown key; did you mean 'max_restarts'"));
  EXPECT_THAT(refusal("searcher:\n  name: single\n  metrik: loss\n"),
              HasSubstr("line 3: searcher.metrik: unknown key; did you mean 'metric'"));
  EXPECT_THAT(
      refusal(std::string(kSingleSearch) + "checkpoint_storage:\n  save_trail_best: 1\n"),
      HasSubstr("line 3: checkpoint_storage.save_trail_best: unknown key; did you mean 'save_trial_best'"));
}

TEST(ExperimentRefusals, SayWhatNeedsDeterminedsCluster) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"bind_mounts: []", "bind_mounts"},
      {"environment: {image: x}", "environment"},
      {"integrations: {}", "integrations"},
      {"log_policies: []", "log_policies"},
      {"retention_policy: {}", "retention_policy"},
      {"pbs: {}", "pbs"},
      {"slurm: {}", "slurm"},
      {"preemption_timeout: 3", "preemption_timeout"},
      {"profiling: {enabled: true}", "profiling"},
      {"project: x", "project"},
      {"workspace: x", "workspace"},
      {"security: {}", "security"},
      {"debug: true", "debug"},
      {"tensorboard_storage: {}", "tensorboard_storage"},
      {"resources: {resource_pool: a}", "resources.resource_pool"},
      {"resources: {priority: 3}", "resources.priority"},
      {"resources: {max_slots: 3}", "resources.max_slots"},
      {"resources: {shm_size: 3}", "resources.shm_size"},
      {"checkpoint_storage: {type: shared_fs}", "checkpoint_storage.type"},
      {"checkpoint_storage: {host_path: /a}", "checkpoint_storage.host_path"},
      {"checkpoint_storage: {bucket: a}", "checkpoint_storage.bucket"}};
  for (const auto& [line, key] : rows) {
    EXPECT_THAT(refusal(kSingleSearch + line + "\n"),
                AllOf(HasSubstr("experiment.yaml line 2: " + key + ": needs Determined's cluster, where it "),
                      HasSubstr("; instead: ")));
  }
  EXPECT_THAT(refusal("searcher: {name: single, metric: loss, max_length: 1, source_trial_id: 3}\n"),
              HasSubstr("line 1: searcher.source_trial_id: needs Determined's cluster"));
  EXPECT_THAT(refusal(std::string(kSingleSearch) + "perform_initial_validation: true\n"),
              HasSubstr("let the program do so before it trains"));
  EXPECT_THAT(refusal("searcher: {name: adaptive_asha, bracket_rungs: [3]}\n"),
              HasSubstr("searcher.mode and"));
}

}  // namespace
}  // namespace deepspeed::trial
