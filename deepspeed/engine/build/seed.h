// One seed for everything that is random: initialisation, dropout, data order.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/comm/init.h"

namespace deepspeed {

/// Seeds the default generators alike on every rank: before the model is built, so that all ranks build the
/// same one. initialize() then gives each rank a stream of its own that follows from this seed.
void manual_seed(uint64_t seed);

/// Starts the random streams of training: the seed is the config's, else that of the default generator. The
/// default generators go on with a stream of this rank (left alone for a world of one without a seed in the
/// config). Returns the seed, which also orders the data.
uint64_t start_rank_streams(const std::optional<int64_t>& config_seed, const comm::World& world);

}  // namespace deepspeed
