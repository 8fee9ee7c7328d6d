// Rules between keys, beyond each key's own table.
#pragma once

#include <cstdint>

#include "deepspeed/base/export.h"
#include "deepspeed/config/config.h"

namespace deepspeed::config {

/// Throws ConfigError, naming the key, for the first contradictory combination of values.
DEEPSPEED_API void require_consistent(const DeepSpeedConfig& config, int64_t data_parallel_world_size);

}  // namespace deepspeed::config
