// Lists the values of a config that must be equal on all ranks of a job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/config.h"

namespace deepspeed::config {

/// Lists path and JSON text of each value, resolved and with defaults. Includes optimizer.params and
/// scheduler.params, but not keys that may differ by rank (`per_rank()` in their tables). Each path occurs
/// once.
DEEPSPEED_API std::vector<std::pair<std::string, std::string>> agreed_values(const DeepSpeedConfig& config);

}  // namespace deepspeed::config
