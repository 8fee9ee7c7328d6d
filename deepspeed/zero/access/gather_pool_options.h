// The limits of a GatherPool, from the config.
#pragma once

#include "deepspeed/config/zero/zero.h"
#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

/// Reads the limits from the keys that begin with stage3_.
GatherPoolOptions gather_pool_options(const config::ZeroConfig& zero);

}  // namespace deepspeed::zero
