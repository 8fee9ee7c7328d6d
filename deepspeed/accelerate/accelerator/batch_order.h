// Which samples a rank gets from a loader, in Accelerate's order.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::accelerate {

/// Describes a loader of all ranks and this rank's place in it.
struct BatchOrder {
  int64_t num_samples = 0;
  int64_t batch_size = 1;  ///< as the program gave it
  bool shuffle = false;
  bool drop_last = false;
  uint64_t seed = 0;
  int rank = 0;
  int world_size = 1;
  bool split_batches = false;  ///< a batch is divided among the ranks; otherwise each rank gets every n-th
  bool even_batches = true;    ///< the last batches are filled from the first ones

  /// Returns the samples of one batch on this rank.
  int64_t batch_size_of_rank() const { return split_batches ? batch_size / world_size : batch_size; }
  /// Returns the samples of all ranks at one step.
  int64_t total_batch_size() const { return split_batches ? batch_size : batch_size * world_size; }
};

/// Returns the samples of all ranks in an epoch: 0, 1, ... or the permutation that Python's torch.randperm()
/// gives for the seed `seed + epoch` (Accelerate's SeedableRandomSampler).
DEEPSPEED_API std::vector<int64_t> samples_of_epoch(const BatchOrder& order, int64_t epoch);

/// Returns this rank's samples, batch by batch, as Accelerate's BatchSamplerShard gives them.
DEEPSPEED_API std::vector<int64_t> samples_of_rank(const BatchOrder& order,
                                                   const std::vector<int64_t>& samples);

}  // namespace deepspeed::accelerate
