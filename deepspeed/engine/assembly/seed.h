// Derives all random streams of a training from one seed: initialisation, dropout, data order.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/comm/init.h"
#include "deepspeed/engine/ranks/parallel_groups.h"

namespace deepspeed {

/// Says how start_rank_streams() treats the default generators.
struct StreamStart {
  std::optional<int64_t> config_seed = {};  // the config's `seed`
  bool divides_default = true;  // ranks get streams of their own even without a seed in the config
  /// True if ranks divide the model. The program may then have called model_parallel_cuda_manual_seed().
  bool may_be_seeded = false;
};

/// Starts the random streams of training and returns the seed, which also orders the data. The seed is the
/// config's. Without one it is that of the default generator of the engine's first rank. The default
/// generators continue with this rank's stream. Ranks that divide a layer share one stream, since they
/// compute equal values. The generators stay as they are if model_parallel_cuda_manual_seed() has set them.
/// Without a seed in the config they also stay as they are in a world of one rank, or if `divides_default` is
/// false.
uint64_t start_rank_streams(const StreamStart& start, const comm::World& world, const ParallelGroups& groups);

}  // namespace deepspeed
