// The optimizer that ZeRO steps: the program's own, or the one that the config names.
#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed {

/// client: the program's own, or null. groups: as make_param_groups() gives them. Throws ConfigError for an
/// optimizer that does not go with the config.
std::unique_ptr<optim::Optimizer> make_base_optimizer(const config::DeepSpeedConfig& config,
                                                      const std::shared_ptr<torch::optim::Optimizer>& client,
                                                      const EngineModel& model,
                                                      std::vector<optim::ParamGroup> groups);

}  // namespace deepspeed
