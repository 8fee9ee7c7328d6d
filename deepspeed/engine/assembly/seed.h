// The random streams of a training, which all follow from one seed: initialisation, dropout, data order.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/comm/init.h"

namespace deepspeed {

/// Starts the random streams of training: the seed is the config's, else that of the default generator of the
/// first of `ranks`, all of the engine. The default generators go on with a stream of this rank. Without a
/// seed in the config they are left alone in a world of one, and where `divides_default` is false. Returns
/// the seed, which also orders the data.
uint64_t start_rank_streams(const std::optional<int64_t>& config_seed, const comm::World& world,
                            const comm::ProcessGroup& ranks, bool divides_default);

}  // namespace deepspeed
