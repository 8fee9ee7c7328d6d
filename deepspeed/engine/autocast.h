// The config's torch_autocast section, applied to a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/config/precision.h"
#include "deepspeed/engine/model.h"

namespace deepspeed {

/// The dtype of the section; nothing where it is off.
std::optional<at::ScalarType> autocast_dtype(const config::TorchAutocastConfig& config,
                                             at::DeviceType device);

/// Marks the parameters of the modules of these classes (default:
/// get_default_autocast_lower_precision_modules()) with the dtype in which their gradients are reduced. Warns
/// where no module is of any of the classes that were named.
void init_autocast_params(const EngineModel& model, at::ScalarType dtype,
                          const std::optional<std::vector<std::string>>& modules = {});

}  // namespace deepspeed
