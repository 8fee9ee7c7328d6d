// The random streams of a training, which all follow from one seed: initialisation, dropout, data order.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/comm/init.h"
#include "deepspeed/engine/ranks/parallel_groups.h"

namespace deepspeed {

/// Says how start_rank_streams() treats the default generators.
struct StreamStart {
  std::optional<int64_t> config_seed = {};  // the config's `seed`
  bool divides_default = true;              // whether ranks get streams of their own without a seed too
  /// The ranks share the model out, so that the program may have called model_parallel_cuda_manual_seed().
  bool may_be_seeded = false;
};

/// Starts the random streams of training: the seed is the config's, else that of the default generator of the
/// engine's first rank. The default generators go on with a stream of this rank. Slices of layers have one in
/// common, since they compute alike what they hold alike. Without a seed in the config the generators are
/// left alone in a world of one, and where `divides_default` is false. They also are where
/// model_parallel_cuda_manual_seed() has set them. Returns the seed, which also orders the data.
uint64_t start_rank_streams(const StreamStart& start, const comm::World& world, const ParallelGroups& groups);

}  // namespace deepspeed
