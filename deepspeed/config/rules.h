// The rules that hold between keys, beyond the table of each.
#pragma once

#include <cstdint>

#include "deepspeed/base/export.h"
#include "deepspeed/config/config.h"

namespace deepspeed::config {

/// Throws ConfigError, naming the key, for the first combination of values that contradicts itself.
DEEPSPEED_API void require_consistent(const DeepSpeedConfig& config, int64_t data_parallel_world_size);

}  // namespace deepspeed::config
