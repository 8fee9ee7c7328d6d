#include "deepspeed/zero/access/gather_pool_options.h"

namespace deepspeed::zero {

GatherPoolOptions gather_pool_options(const config::ZeroConfig& zero) {
  GatherPoolOptions options;
  options.max_live_numel = zero.stage3_max_live_parameters;
  options.persistence_threshold = zero.stage3_param_persistence_threshold;
  options.model_persistence_threshold = zero.stage3_model_persistence_threshold;
  options.prefetch_numel = zero.stage3_prefetch_bucket_size;
  options.max_reuse_distance = zero.stage3_max_reuse_distance;
  options.fetch = zero.stage3_use_all_reduce_for_fetch_params ? Fetch::kAllReduce : Fetch::kAllGather;
  options.is_sequential = zero.stage3_allgather_sequential;
  options.log_new_traces = zero.log_trace_cache_warnings;
  return options;
}

}  // namespace deepspeed::zero
