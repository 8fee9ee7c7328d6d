// What a config says of dtypes, and of how ZeRO reduces and updates.
#pragma once

#include <optional>
#include <string>

#include "deepspeed/config/config.h"
#include "deepspeed/zero/zero_options.h"

namespace deepspeed {

/// Of the model's parameters.
at::ScalarType model_dtype(const config::DeepSpeedConfig& config);
/// Of "fp32", "fp16" or "bf16".
std::optional<at::ScalarType> dtype_of(const std::optional<std::string>& name);
/// Without what depends on the model.
zero::ZeroOptions zero_options(const config::DeepSpeedConfig& config, int world_size);

}  // namespace deepspeed
