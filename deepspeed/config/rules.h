// What keys demand of one another.
#pragma once

#include <cstdint>

#include "deepspeed/base/json.h"
#include "deepspeed/config/config.h"

namespace deepspeed::config {

/// Throws ConfigError, naming the key, for the first combination of values that contradicts itself. `values`
/// are all keys as read_section gives them, those without a member included.
void require_consistent(const DeepSpeedConfig& config, const Json& values, int64_t data_parallel_world_size);

}  // namespace deepspeed::config
