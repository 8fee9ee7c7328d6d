// The section zero_optimization, and the getters of its keys.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/config/table/table.h"
#include "deepspeed/config/zero/leaf_module.h"
#include "deepspeed/config/zero/offload.h"
#include "deepspeed/config/zero/zenflow.h"
#include "deepspeed/config/zero/zero_gathers.h"
#include "deepspeed/config/zero/zero_gradients.h"

namespace deepspeed::config {

/// Options of ZeRO. Sizes and thresholds are in elements. The keys that begin with stage3_ act at stage 3
/// alone. Those of the bases go as they are to the part of zero/ that acts on them.
struct ZeroConfig : ZeroGradientConfig, PartitionGatherConfig, ParamGatherConfig {
  int64_t stage = 0;
  std::optional<bool> overlap_comm;  // absent: at stage 3 alone
  bool load_from_fp32_weights = true;
  bool elastic_checkpoint = false;
  OffloadParamConfig offload_param;
  OffloadOptimizerConfig offload_optimizer;
  std::optional<ZenflowConfig> zenflow;
  int64_t sub_group_size = 1'000'000'000;
  bool stage3_gather_16bit_weights_on_model_save = false;
  int64_t stage3_module_granularity_threshold = 0;
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
  bool enable_sanity_checks = false;
  bool save_muon_momentum_buffer_in_memory = false;
  LeafModuleConfig leaf_module;

  /// Whether gradients are reduced while backward goes on.
  bool overlaps_comm() const { return overlap_comm.value_or(stage == 3); }
};

/// The getters that training scripts know. `Holder` derives from this and has config(), the whole config.
template <class Holder>
class ZeroGetters : public ZeroGradientGetters<Holder>, public ZeroGatherGetters<Holder> {
 public:
  int zero_optimization_stage() const { return static_cast<int>(keys().stage); }
  bool zero_optimization() const { return keys().stage > 0; }
  bool zero_optimization_partition_gradients() const { return keys().stage >= 2; }
  bool zero_optimization_partition_weights() const { return keys().stage >= 3; }
  bool zero_overlap_comm() const { return keys().overlaps_comm(); }
  bool zero_round_robin_gradients() const { return keys().round_robin_gradients; }
  bool zero_legacy_stage1() const { return keys().legacy_stage1; }
  bool zero_load_from_fp32_weights() const { return keys().load_from_fp32_weights; }
  bool zero_save_muon_momentum_buffer_in_memory() const { return keys().save_muon_momentum_buffer_in_memory; }
  bool is_sanity_checks_enabled() const { return keys().enable_sanity_checks; }
  bool zero_elastic_checkpoint() const { return keys().elastic_checkpoint; }
  const OffloadOptimizerConfig& zero_offload_optimizer() const { return keys().offload_optimizer; }
  const OffloadParamConfig& zero_offload_param() const { return keys().offload_param; }
  bool zero_cpu_offload() const { return zero_offload_optimizer().device == "cpu"; }
  bool zero_use_cpu_optimizer() const { return zero_offload_optimizer().device != "none"; }
  bool zero_nvme_offload_optimizer() const { return zero_offload_optimizer().device == "nvme"; }
  bool super_offload() const { return zero_offload_optimizer().super_offload; }
  double cpuadam_cores_perc() const { return zero_offload_optimizer().cpuadam_cores_perc; }
  double zero_partial_offload() const { return zero_offload_optimizer().ratio; }
  int64_t zero_sub_group_size() const { return keys().sub_group_size; }
  int64_t zero_module_granularity_threshold() const { return keys().stage3_module_granularity_threshold; }
  bool zero_gather_16bit_weights_on_model_save() const {
    return keys().stage3_gather_16bit_weights_on_model_save;
  }
  int64_t zero_hpz_partition_size() const { return keys().zero_hpz_partition_size; }
  bool zero_quantized_weights() const { return keys().zero_quantized_weights; }
  bool zero_quantized_gradients() const { return keys().zero_quantized_gradients; }
  bool zero_quantized_nontrainable_weights() const { return keys().zero_quantized_nontrainable_weights; }
  int64_t mics_shard_size() const { return keys().mics_shard_size; }

 private:
  const ZeroConfig& keys() const { return static_cast<const Holder&>(*this).config().zero_optimization; }
};

const Table<ZeroConfig>& zero_table();

/// Makes an object of the section where it is the deprecated truth value: true is stage 1.
Json zero_from_truth_value(const Json& given);

}  // namespace deepspeed::config
