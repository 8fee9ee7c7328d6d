// The sections flops_profiler, comms_logger and timers: what measures a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

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

const Table<FlopsProfilerConfig>& flops_profiler_table();
const Table<CommsLoggerConfig>& comms_logger_table();
const Table<TimersConfig>& timers_table();

}  // namespace deepspeed::config
