// How stage 3 cuts a parameter: padded by itself to a multiple of the ranks, and into equal shards.
#pragma once

#include <algorithm>
#include <cstdint>

#include "deepspeed/base/interval.h"

namespace deepspeed {

/// Elements of each shard, padding included.
constexpr int64_t shard_numel(int64_t numel, int64_t num_ranks) {
  return (numel + num_ranks - 1) / num_ranks;
}

/// Which elements of a parameter a rank's shard holds; the rest of the shard is padding.
inline Interval shard_elements(int64_t numel, int64_t num_ranks, int64_t rank) {
  const int64_t shard = shard_numel(numel, num_ranks);
  return {std::min(rank * shard, numel), std::min((rank + 1) * shard, numel)};
}

}  // namespace deepspeed
