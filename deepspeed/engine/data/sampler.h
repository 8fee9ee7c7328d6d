// Decides which samples each rank sees, and in which order. The result depends only on the arguments, and is
// the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed {

struct SamplerOptions {
  int64_t dataset_size = 0;
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  bool drop_last = false;  // drop the remainder instead of repeating the first samples
  uint64_t seed = 0;
};

/// Returns the order of the whole data set in one epoch. It is a Fisher-Yates shuffle driven by seed and
/// epoch, padded or cut to a multiple of the world size. Rank r takes elements r, r + world_size, ..., so a
/// global batch has the same samples for any number of ranks.
DEEPSPEED_API std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch);

/// Returns the sample indices of `options.rank` in an epoch, in order.
DEEPSPEED_API std::vector<int64_t> rank_indices(const SamplerOptions& options, int64_t epoch);

/// Holds a data loader's position in its samples. A checkpoint stores the position, so that a resumed run
/// sees the same batches.
struct LoaderPosition {
  uint64_t seed = 0;
  int64_t epoch = -1;            // of the current permutation; -1: none has begun
  int64_t samples_consumed = 0;  // of this epoch, over all ranks
  bool epoch_ended = true;
  bool resume = false;  // set by a restored checkpoint: continue here instead of starting an epoch
};

}  // namespace deepspeed
