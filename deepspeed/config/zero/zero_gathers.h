// The keys of zero_optimization that say how parameters come together from all ranks, and their getters.
#pragma once

#include <cstdint>
#include <limits>

namespace deepspeed::config {

/// Stages 1 and 2: how updated partitions are sent to all ranks. Sizes are in elements.
struct PartitionGatherConfig {
  bool allgather_partitions = true;
  int64_t allgather_bucket_size = 500'000'000;
};

/// Stage 3: how parameters are gathered when they are used, and how long they stay. Sizes are in elements.
struct ParamGatherConfig {
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_param_persistence_threshold = 100'000;
  int64_t stage3_model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t stage3_max_live_parameters = 1'000'000'000;
  int64_t stage3_max_reuse_distance = 1'000'000'000;
  bool stage3_use_all_reduce_for_fetch_params = false;
  bool stage3_allgather_sequential = false;
  bool log_trace_cache_warnings = false;
};

/// The getters that training scripts know. `Holder` derives from this and has config(), the whole config.
template <class Holder>
class ZeroGatherGetters {
 public:
  bool zero_allgather_partitions() const { return partition_keys().allgather_partitions; }
  int64_t zero_allgather_bucket_size() const { return partition_keys().allgather_bucket_size; }

  int64_t zero_prefetch_bucket_size() const { return param_keys().stage3_prefetch_bucket_size; }
  int64_t zero_param_persistence_threshold() const { return param_keys().stage3_param_persistence_threshold; }
  int64_t zero_model_persistence_threshold() const { return param_keys().stage3_model_persistence_threshold; }
  int64_t zero_max_live_parameters() const { return param_keys().stage3_max_live_parameters; }
  int64_t zero_max_reuse_distance() const { return param_keys().stage3_max_reuse_distance; }
  bool zero_allgather_sequential() const { return param_keys().stage3_allgather_sequential; }
  bool zero_log_trace_cache_warnings() const { return param_keys().log_trace_cache_warnings; }

 private:
  const PartitionGatherConfig& partition_keys() const {
    return static_cast<const Holder&>(*this).config().zero_optimization;
  }
  const ParamGatherConfig& param_keys() const {
    return static_cast<const Holder&>(*this).config().zero_optimization;
  }
};

}  // namespace deepspeed::config
