// What torch's errors in a model's forward mean for the config.
#pragma once

#include <c10/util/Exception.h>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"

namespace deepspeed {

/// Throws UsageError with torch's words and the way out, for an error that the config's precision causes:
/// torch's batch norm on a CPU wants its buffers in the type of its parameters. Returns for any other.
void explain_forward_error(const c10::Error& error, const config::DeepSpeedConfig& config,
                           const EngineModel& model);

}  // namespace deepspeed
