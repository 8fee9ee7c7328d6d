// Derives dtypes and ZeRO's options from a config.
#pragma once

#include <optional>
#include <string>

#include "deepspeed/config/config.h"
#include "deepspeed/zero/zero_options.h"

namespace deepspeed {

/// Returns the dtype of the model's parameters.
at::ScalarType model_dtype(const config::DeepSpeedConfig& config);
/// Returns the dtype that "fp32", "fp16" or "bf16" names; nothing for no name.
std::optional<at::ScalarType> dtype_of(const std::optional<std::string>& name);
/// Returns ZeRO's options as far as they do not depend on the model.
zero::ZeroOptions zero_options(const config::DeepSpeedConfig& config, int world_size);

}  // namespace deepspeed
