#include "deepspeed/zero/layout/rank_sharing.h"

namespace deepspeed::zero {

RankSharing rank_sharing(const config::ZeroConfig& config, int data_ranks) {
  if (config.stage != 3) return {};
  // A secondary partition over all ranks would hold what the shards hold.
  const bool has_secondary = config.zero_hpz_partition_size < data_ranks;
  return {.num_shards = config.num_shards(data_ranks),
          .secondary_size = has_secondary ? static_cast<int>(config.zero_hpz_partition_size) : 0,
          .by_nodes = config.zero_quantized_gradients || config.mics_hierarchical_params_gather};
}

}  // namespace deepspeed::zero
