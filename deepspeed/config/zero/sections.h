// The section zero_optimization with its nested sections, and aio, which offloading to disks uses.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Holds options of asynchronous file access, used for offloading to NVMe.
struct AioConfig {
  int64_t block_size = 1048576;
  int64_t queue_depth = 8;
  int64_t intra_op_parallelism = 1;
  bool single_submit = false;
  bool overlap_events = true;
  bool use_gds = false;
};

/// Selects modules whose parameters stage 3 gathers as a unit.
struct LeafModuleConfig {
  std::vector<std::string> classes;
  std::vector<std::string> names;
  std::vector<std::string> name_suffixes;
};

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

/// Holds options of the error feedback for 4-bit gradients.
struct LocoConfig {
  double err_beta = 0.8;
  int64_t reset_T = 1024;
};

/// Configures how gradients are summed over the ranks. Sizes are in elements.
struct ZeroGradientConfig {
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  int64_t reduce_bucket_size = 500'000'000;
  bool use_multi_rank_bucket_allreduce = true;
  bool ignore_unused_parameters = true;
};

/// Configures how stages 1 and 2 send updated partitions to all ranks. Sizes are in elements.
struct PartitionGatherConfig {
  bool allgather_partitions = true;
  int64_t allgather_bucket_size = 500'000'000;
};

/// Configures how stage 3 gathers parameters for use, and how long they stay. Sizes are in elements.
struct DEEPSPEED_API ParamGatherConfig {
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_param_persistence_threshold = 100'000;
  int64_t stage3_model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t stage3_max_live_parameters = 1'000'000'000;
  int64_t stage3_max_reuse_distance = 1'000'000'000;
  bool stage3_use_all_reduce_for_fetch_params = false;
  bool stage3_allgather_sequential = false;
  bool zero_quantized_weights = false;
  bool zero_quantized_nontrainable_weights = false;
  std::string zero_quantized_weights_dtype = "int8";
  bool mics_hierarchical_params_gather = false;
  bool log_trace_cache_warnings = false;

  /// Returns whether parameters are gathered between nodes first, then within each node. Without node groups
  /// in the job the answer has no effect.
  bool gathers_by_nodes() const { return mics_hierarchical_params_gather || zero_quantized_weights; }
};

/// Holds options of ZeRO. Sizes and thresholds are in elements. Keys that begin with stage3_ act only at
/// stage 3. Each base class is passed as a whole to the part of zero/ that uses it.
struct DEEPSPEED_API ZeroConfig : ZeroGradientConfig, PartitionGatherConfig, ParamGatherConfig {
  int64_t stage = 0;
  std::optional<bool> overlap_comm;  // absent: only at stage 3
  bool load_from_fp32_weights = true;
  bool elastic_checkpoint = false;
  OffloadParamConfig offload_param;
  OffloadOptimizerConfig offload_optimizer;
  Json zenflow;  // as given, since ZenFlow does not exist yet; null: absent
  int64_t sub_group_size = 1'000'000'000;
  bool stage3_gather_16bit_weights_on_model_save = false;
  int64_t stage3_module_granularity_threshold = 0;
  bool legacy_stage1 = false;
  bool round_robin_gradients = false;
  int64_t zero_hpz_partition_size = 1;
  bool zero_quantized_gradients = false;
  std::optional<LocoConfig> zeropp_loco_param;
  int64_t mics_shard_size = -1;
  bool memory_efficient_linear = true;
  bool pipeline_loading_checkpoint = false;
  bool override_module_apply = true;
  bool enable_sanity_checks = false;
  bool save_muon_momentum_buffer_in_memory = false;
  LeafModuleConfig leaf_module;

  /// Returns whether gradients are reduced while backward runs.
  bool overlaps_comm() const { return overlap_comm.value_or(stage == 3); }
  /// Returns how many of the `data_ranks` data-parallel ranks together hold one copy of the model states.
  int num_shards(int data_ranks) const {
    return mics_shard_size > 0 ? static_cast<int>(mics_shard_size) : data_ranks;
  }
};

}  // namespace deepspeed::config
