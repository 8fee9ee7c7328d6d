// How the data-parallel ranks share out what they hold, as the config says it.
#pragma once

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/layout/zero_groups.h"

namespace deepspeed::zero {

/// data_ranks: how many there are.
RankSharing rank_sharing(const config::ZeroConfig& config, int data_ranks);

}  // namespace deepspeed::zero
