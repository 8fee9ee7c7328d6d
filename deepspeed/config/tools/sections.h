// The sections around a training: flops_profiler, comms_logger and timers measure it, tensorboard,
// csv_monitor, wandb, comet and nebula take what it sends, elasticity and autotuning choose its batch sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Options that report the cost of a step, layer by layer.
struct FlopsProfilerConfig {
  bool enabled = false;
  double recompute_fwd_factor = 0.0;
  int64_t profile_step = 1;
  int64_t module_depth = -1;
  int64_t top_modules = 1;
  bool detailed = true;
  std::optional<std::string> output_file;
};

/// Options that log sizes and times of collectives.
struct CommsLoggerConfig {
  bool enabled = false;
  bool verbose = false;
  bool prof_all = true;
  bool debug = false;
  std::vector<std::string> prof_ops;
};

/// Options that log samples a second.
struct ThroughputTimerConfig {
  bool enabled = true;
  bool synchronized = true;
};

/// Options of all timers.
struct TimersConfig {
  ThroughputTimerConfig throughput;
};

/// Options that send scalars to files: the sections tensorboard and csv_monitor.
struct FileMonitorConfig {
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";
};

/// Options that send scalars to Weights & Biases.
struct WandbConfig {
  bool enabled = false;
  std::optional<std::string> group;
  std::optional<std::string> team;
  std::string project = "deepspeed";
};

/// Options that send scalars to Comet.
struct CometConfig {
  bool enabled = false;
  int64_t samples_log_interval = 100;
  std::optional<std::string> project;
  std::optional<std::string> workspace;
  std::optional<std::string> api_key;
  std::optional<std::string> experiment_name;
  std::optional<std::string> experiment_key;
  std::optional<bool> online;
  std::optional<std::string> mode;
};

/// Options that send checkpoints through the Nebula service.
struct NebulaConfig {
  bool enabled = false;
  std::optional<std::string> nebula_load_path;
  bool enable_nebula_load = true;
  std::optional<std::string> persistent_storage_path;
  int64_t persistent_time_interval = 100;
  int64_t num_of_version_in_retention = 2;
};

/// Options of batch sizes that fit many numbers of devices.
struct ElasticityConfig {
  bool enabled = false;
  int64_t max_train_batch_size = 2000;
  std::vector<int64_t> micro_batch_sizes = {2, 4, 6};
  int64_t min_gpus = 1;
  int64_t max_gpus = 10000;
  int64_t num_gpus_per_node = 1;
  int64_t model_parallel_size = 1;
  int64_t min_time = 0;
  bool prefer_larger_batch = true;
  bool ignore_non_elastic_batch_info = false;
  double version = 0.2;
};

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

}  // namespace deepspeed::config
