// Sections around a training. flops_profiler, comms_logger and timers measure it. tensorboard, csv_monitor,
// wandb, comet and nebula receive its data. elasticity and autotuning choose its batch sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Holds options for reporting the cost of a step, layer by layer.
struct FlopsProfilerConfig {
  bool enabled = false;
  double recompute_fwd_factor = 0.0;
  int64_t profile_step = 1;
  int64_t module_depth = -1;
  int64_t top_modules = 1;
  bool detailed = true;
  std::optional<std::string> output_file;
};

/// Holds options for logging sizes and times of collectives.
struct CommsLoggerConfig {
  bool enabled = false;
  bool verbose = false;
  bool prof_all = true;
  bool debug = false;
  std::vector<std::string> prof_ops;
};

/// Holds options for logging samples per second.
struct ThroughputTimerConfig {
  bool enabled = true;
  bool synchronized = true;
};

/// Holds options of all timers.
struct TimersConfig {
  ThroughputTimerConfig throughput;
};

/// Holds options for writing scalars to files: the sections tensorboard and csv_monitor.
struct FileMonitorConfig {
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";
};

/// Holds the rules of the section elasticity, by which elastic_batch.h chooses batch sizes.
struct ElasticRules {
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

  /// Reads and checks a section, which may have been checked before. Throws ConfigError naming the key.
  DEEPSPEED_API static ElasticRules from_json(const Json& given);
  /// Returns all keys with their values.
  DEEPSPEED_API Json to_json() const;
};

}  // namespace deepspeed::config
