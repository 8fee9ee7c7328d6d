// The values of a config that must be alike on all ranks of a job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/config.h"

namespace deepspeed::config {

/// Lists path and JSON text of each value, resolved and with defaults, also of optimizer.params and
/// scheduler.params, without the keys that are a rank's own (`per_rank()` in their tables). Each path stands
/// there once.
DEEPSPEED_API std::vector<std::pair<std::string, std::string>> agreed_values(const DeepSpeedConfig& config);

}  // namespace deepspeed::config
