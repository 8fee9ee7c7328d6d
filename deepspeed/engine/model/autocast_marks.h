// Applies the config's torch_autocast section to a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "deepspeed/config/training/sections.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

namespace deepspeed {

/// Returns the dtype that the section names, by default the usual one of `device`. Nothing if the section is
/// off.
std::optional<at::ScalarType> autocast_dtype(const config::TorchAutocastConfig& config,
                                             at::DeviceType device);

/// Marks parameters as init_autocast_params() does, and returns the marks.
zero::ParamDtypes mark_autocast_params(const EngineModel& model, at::ScalarType dtype,
                                       const std::optional<std::vector<std::string>>& modules = {});

}  // namespace deepspeed
