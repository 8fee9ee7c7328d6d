// The section data_efficiency.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options that show easy samples first.
struct DataCurriculumConfig {
  bool enabled = false;
  std::optional<std::string> data_cluster_path;
  std::optional<Json> curriculum_metrics;
};

/// Options of batches with a number of tokens.
struct DynamicBatchingConfig {
  bool enabled = false;
  std::optional<std::string> metrics_path;
  std::string lr_scaling_method = "linear";
  int64_t min_batch_size = 1;
  std::optional<int64_t> max_batch_size;
  std::string sequence_picking_order = "dataloader";
  std::optional<int64_t> max_tokens;
  bool verbose = false;
};

/// Options of which samples come when.
struct DataSamplingConfig {
  bool enabled = false;
  int64_t num_epochs = 1000;
  int64_t num_workers = 0;
  bool pin_memory = false;
  DataCurriculumConfig curriculum_learning;
  DynamicBatchingConfig dynamic_batching;
};

/// Options of how the number of tokens grows: by seq_per_step every require_steps.
struct RandomLtdGrowthConfig {
  std::optional<int64_t> require_steps;
  std::optional<int64_t> seq_per_step;
};

/// Options of how many tokens the dropping layers see.
struct RandomLtdScheduleConfig {
  std::optional<int64_t> min_value;
  std::optional<int64_t> max_value;
  std::optional<std::string> schedule_type;
  RandomLtdGrowthConfig schedule_config;
};

/// Options of a learning rate by tokens seen.
struct TokenLrScheduleConfig {
  bool enabled = false;
};

/// Options of layers that see some of the tokens.
struct RandomLtdConfig {
  bool enabled = false;
  std::optional<int64_t> total_layer_num;
  std::optional<int64_t> random_ltd_layer_num;
  std::optional<std::vector<int64_t>> random_ltd_layer_id;
  std::optional<std::string> model_mask_name;
  std::optional<std::string> model_type;
  std::optional<std::string> hidden_state_order;
  RandomLtdScheduleConfig random_ltd_schedule;
  TokenLrScheduleConfig layer_token_lr_schedule;
};

/// Options of which tokens pass which layers.
struct DataRoutingConfig {
  bool enabled = false;
  RandomLtdConfig random_ltd;
};

/// Options that train on less data for equal quality.
struct DataEfficiencyConfig {
  bool enabled = false;
  int64_t seed = 1234;
  DataSamplingConfig data_sampling;
  DataRoutingConfig data_routing;
};

const Table<DataEfficiencyConfig>& data_efficiency_table();

}  // namespace deepspeed::config
