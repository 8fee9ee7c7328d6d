// The section expert_parallel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of expert parallelism.
struct ExpertParallelConfig {
  bool enabled = false;
  int64_t autoep_size = 1;
  int64_t expert_tensor_parallel_size = 1;
  bool validate_folding_routing = false;
  std::optional<std::string> preset_model;
  std::optional<std::string> moe_layer_pattern;
  std::optional<std::string> expert_pattern;
  std::optional<std::string> router_pattern;
  bool use_grouped_mm = true;
  bool disable_triton_grouped_mm = false;
  std::optional<bool> route_norm;
  double route_scale = 1.0;
  std::string score_apply = "auto";
  std::string combine_impl = "auto";
  std::optional<int64_t> num_expert_groups;
  std::optional<int64_t> num_limited_groups;
  std::string score_func = "auto";
  Json top_k = "auto";
  Json load_balance_coeff;
  Json routed_scaling_factor = "auto";
  std::optional<std::string> expert_w1;
  std::optional<std::string> expert_w2;
  std::optional<std::string> expert_w3;
  std::optional<std::string> num_experts_attr;
  std::optional<std::string> top_k_attr;
  std::optional<bool> has_shared_experts;
  std::optional<std::string> shared_experts_pattern;
  std::optional<std::string> shared_experts_gate_pattern;
};

const Table<ExpertParallelConfig>& expert_parallel_table();

}  // namespace deepspeed::config
