// The sections tensorboard, csv_monitor, wandb, comet and nebula: where scalars and checkpoints are sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

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

const Table<FileMonitorConfig>& file_monitor_table();
const Table<WandbConfig>& wandb_table();
const Table<CometConfig>& comet_table();
const Table<NebulaConfig>& nebula_table();

}  // namespace deepspeed::config
