// The section autotuning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options that say what is known of the model.
struct ModelInfoConfig {
  bool profile = false;
  std::optional<int64_t> num_params;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> num_layers;
};

/// Options of a search for the fastest config.
struct AutotuningConfig {
  bool enabled = false;
  bool fast = true;
  std::string results_dir = "autotuning_results";
  std::string exps_dir = "autotuning_exps";
  bool overwrite = true;
  int64_t start_profile_step = 3;
  int64_t end_profile_step = 5;
  std::string metric = "throughput";
  std::optional<std::string> metric_path;
  std::optional<ModelInfoConfig> model_info;
  std::optional<std::string> model_info_path;
  std::string tuner_type = "gridsearch";
  int64_t tuner_early_stopping = 5;
  int64_t tuner_num_trials = 50;
  std::optional<Json> arg_mappings;
  int64_t mp_size = 1;
  std::optional<int64_t> max_train_batch_size;
  int64_t min_train_batch_size = 1;
  int64_t max_train_micro_batch_size_per_gpu = 1024;
  int64_t min_train_micro_batch_size_per_gpu = 1;
  int64_t num_tuning_micro_batch_sizes = 3;
};

const Table<AutotuningConfig>& autotuning_table();

}  // namespace deepspeed::config
