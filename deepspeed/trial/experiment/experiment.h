// An experiment: a program, a space of hyperparameters and the search over it, as a YAML file describes them.
// The keys are those of Determined (docs/reference/experiment-config-reference.rst, 0.38) that have a meaning
// without its cluster.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/trial/experiment/hyperparameter.h"
#include "deepspeed/trial/experiment/length.h"
#include "deepspeed/trial/experiment/searcher_config.h"
#include "deepspeed/yaml/yaml_file.h"

namespace deepspeed::trial {

/// Says after which validations a checkpoint is saved. `kBest`: those better than all before.
enum class CheckpointPolicy { kBest, kAll, kNone };

/// Says how many checkpoints are kept. A checkpoint that one of the three rules keeps is kept.
struct KeptCheckpoints {
  int64_t experiment_best = 0;  ///< the best of all trials
  int64_t trial_best = 1;       ///< the best of each trial
  int64_t trial_latest = 1;     ///< the latest of each trial
};

/// Holds what an experiment's YAML says, with defaults for what it leaves out.
struct Experiment {
  std::string name;
  std::string description;
  std::vector<std::string> labels;
  std::vector<std::string>
      entrypoint;  ///< the command of a trial; text becomes {"sh", "-c", text}; may be empty
  Space hyperparameters;
  SearcherConfig searcher;
  Length min_validation_period;  ///< 0: only at the lengths that the search asks for
  Length min_checkpoint_period;  ///< 0: only as checkpoint_policy says
  CheckpointPolicy checkpoint_policy = CheckpointPolicy::kBest;
  KeptCheckpoints kept_checkpoints;
  int64_t max_restarts = 5;       ///< of a trial that fails
  int64_t records_per_epoch = 0;  ///< 0: not given; then no length is in epochs
  int64_t slots_per_trial = 1;    ///< devices of a trial; 0: none, it runs on the CPU
  uint32_t seed = 0;              ///< reproducibility.experiment_seed
  int64_t scheduling_unit = 100;  ///< batches between two checks of what a trial is asked to do
  Json data = Json::object();     ///< for the program alone
};

/// Reads an experiment. Throws ConfigError "FILE line N: KEY: got ..., expected ..." for a wrong value, a
/// missing or unknown key, a key that needs Determined's cluster, and values that contradict each other.
DEEPSPEED_API Experiment parse_experiment(const YamlDocument& document);

/// Reads a file as parse_experiment() does. Throws IoError as read_yaml_file() does.
DEEPSPEED_API Experiment read_experiment(const std::filesystem::path& path);

/// Returns a digest of the hyperparameters, searcher, data and records_per_epoch, on which results depend. It
/// is SHA-256 in hexadecimal digits. The seed is not part of it. Names, the command, the periods, and the
/// rules for restarts and checkpoints are not either: they may change while a search is interrupted.
DEEPSPEED_API std::string digest_of(const Experiment& experiment);

}  // namespace deepspeed::trial
