// The sections that share a model out or let it fit: activation_checkpointing, pipeline, tensor_parallel,
// expert_parallel and sparse_attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Options of activations that backward computes again.
struct ActivationCheckpointingConfig {
  bool partition_activations = false;
  bool cpu_checkpointing = false;
  bool contiguous_memory_optimization = false;
  std::optional<int64_t> number_checkpoints;
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;
};

/// Options of pipeline parallelism.
struct PipelineConfig {
  std::optional<int64_t> stages;  // "auto" in a config stands for none
  std::string partition = "best";
  bool seed_layers = false;
  int64_t activation_checkpoint_interval = 0;
  bool pipe_partitioned = true;
  bool grad_partitioned = true;
  bool use_reentrant = true;
  std::string schedule = "1f1b";
  int64_t model_chunks = 1;
};

/// Options of the ranks that share a layer.
struct TensorParallelRanksConfig {
  int64_t tp_size = 1;
  int64_t tp_grain_size = 1;
  Json mpu;
  Json tp_group;
};

/// Options of tensor parallelism.
struct TensorParallelConfig {
  std::string dtype = "torch.float16";
  int64_t autotp_size = 0;
  bool tp_overlap_comm = false;
  TensorParallelRanksConfig tensor_parallel;
  Json injection_policy_tuple;
  std::optional<Json> partition_config;
  std::optional<std::string> preset_model;
  bool keep_module_on_host = false;
  bool replace_with_kernel_inject = false;
};

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

/// Options of block-sparse attention.
struct SparseAttentionConfig {
  std::string mode = "fixed";
  int64_t block = 16;
  bool different_layout_per_head = false;
  int64_t num_local_blocks = 4;
  int64_t num_global_blocks = 1;
  std::string attention = "bidirectional";
  bool horizontal_global_attention = false;
  int64_t num_different_global_patterns = 1;
  int64_t num_random_blocks = 0;
  std::vector<int64_t> local_window_blocks = {4};
  std::vector<int64_t> global_block_indices = {0};
  std::optional<std::vector<int64_t>> global_block_end_indices;
  int64_t num_sliding_window_blocks = 3;
};

}  // namespace deepspeed::config
