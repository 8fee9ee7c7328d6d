// The sections zero_optimization.offload_param and zero_optimization.offload_optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

struct OffloadParamConfig {
  std::string device = "none";
  std::optional<std::string> nvme_path;
  int64_t buffer_count = 5;
  int64_t buffer_size = 100'000'000;   // elements
  int64_t max_in_cpu = 1'000'000'000;  // elements
  bool pin_memory = true;
};

struct OffloadOptimizerConfig {
  std::string device = "none";
  std::optional<std::string> nvme_path;
  int64_t buffer_count = 4;
  bool pin_memory = true;
  bool pipeline_read = false;
  bool pipeline_write = false;
  bool fast_init = false;
  double ratio = 1.0;
  bool super_offload = false;
  double cpuadam_cores_perc = 0.8;
};

const Table<OffloadParamConfig>& offload_param_table();
const Table<OffloadOptimizerConfig>& offload_optimizer_table();

}  // namespace deepspeed::config
