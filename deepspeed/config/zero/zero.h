// The section zero_optimization.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "deepspeed/config/table/table.h"
#include "deepspeed/config/zero/leaf_module.h"
#include "deepspeed/config/zero/offload.h"
#include "deepspeed/config/zero/zenflow.h"

namespace deepspeed::config {

/// Options of ZeRO. Sizes and thresholds are in elements. The keys that begin with stage3_ act at stage 3
/// alone.
struct ZeroConfig {
  int64_t stage = 0;
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  int64_t reduce_bucket_size = 500'000'000;
  bool use_multi_rank_bucket_allreduce = true;
  bool allgather_partitions = true;
  int64_t allgather_bucket_size = 500'000'000;
  std::optional<bool> overlap_comm;  // absent: at stage 3 alone
  bool load_from_fp32_weights = true;
  bool elastic_checkpoint = false;
  OffloadParamConfig offload_param;
  OffloadOptimizerConfig offload_optimizer;
  std::optional<ZenflowConfig> zenflow;
  int64_t sub_group_size = 1'000'000'000;
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_param_persistence_threshold = 100'000;
  int64_t stage3_model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t stage3_max_live_parameters = 1'000'000'000;
  int64_t stage3_max_reuse_distance = 1'000'000'000;
  bool stage3_gather_16bit_weights_on_model_save = false;
  int64_t stage3_module_granularity_threshold = 0;
  bool stage3_use_all_reduce_for_fetch_params = false;
  bool stage3_allgather_sequential = false;
  bool ignore_unused_parameters = true;
  bool legacy_stage1 = false;
  bool round_robin_gradients = false;
  int64_t zero_hpz_partition_size = 1;
  bool zero_quantized_weights = false;
  bool zero_quantized_nontrainable_weights = false;
  bool zero_quantized_gradients = false;
  std::optional<Json> zeropp_loco_param;
  int64_t mics_shard_size = -1;
  bool mics_hierarchical_params_gather = false;
  bool memory_efficient_linear = true;
  bool pipeline_loading_checkpoint = false;
  bool override_module_apply = true;
  bool log_trace_cache_warnings = false;
  bool enable_sanity_checks = false;
  bool save_muon_momentum_buffer_in_memory = false;
  LeafModuleConfig leaf_module;
};

const Table<ZeroConfig>& zero_table();

/// Makes an object of the section where it is the deprecated truth value: true is stage 1.
Json zero_from_truth_value(const Json& given);

}  // namespace deepspeed::config
