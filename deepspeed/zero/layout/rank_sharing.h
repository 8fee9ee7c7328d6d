// How the config lets data-parallel ranks share what they hold.
#pragma once

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/layout/zero_groups.h"

namespace deepspeed::zero {

/// Returns the RankSharing that the config asks for; the default unless its stage is 3. data_ranks: number of
/// data-parallel ranks.
RankSharing rank_sharing(const config::ZeroConfig& config, int data_ranks);

}  // namespace deepspeed::zero
