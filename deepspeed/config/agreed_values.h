// The values of a config that must be alike on all ranks of a job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deepspeed/config/config.h"

namespace deepspeed::config {

/// Lists path and JSON text of each value, resolved and with defaults, also of optimizer.params and
/// scheduler.params, without the keys that are a rank's own (`per_rank()` in their tables). Each path stands
/// there once.
std::vector<std::pair<std::string, std::string>> agreed_values(const DeepSpeedConfig& config);

}  // namespace deepspeed::config
