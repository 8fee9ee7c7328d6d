// The place of a model's shards, from the config.
#pragma once

#include <c10/core/ScalarType.h>

#include "deepspeed/config/config.h"
#include "deepspeed/zero/shards/shard_home.h"

namespace deepspeed::zero {

/// Reads offload_param and aio for shards of `dtype` on rank `rank`. Host memory is page-locked only with
/// CUDA.
ShardHomeOptions shard_home_options(const config::DeepSpeedConfig& config, at::ScalarType dtype, int rank,
                                    bool on_cuda);

}  // namespace deepspeed::zero
