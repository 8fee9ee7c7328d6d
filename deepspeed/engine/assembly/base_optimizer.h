// Makes the optimizer that ZeRO steps: the program's own, or the one that the config names.
#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed {

/// Holds the program's own optimizer in one of two forms. Both are null if the config's is used.
struct ClientOptimizer {
  std::shared_ptr<torch::optim::Optimizer> torch;
  SliceOptimizerFactory of_slices;

  explicit operator bool() const { return torch != nullptr || of_slices != nullptr; }
};

/// Makes the program's own optimizer, or the config's if there is none. groups: as make_param_groups()
/// returns them. Throws ConfigError if the optimizer does not fit the config.
std::unique_ptr<optim::Optimizer> make_base_optimizer(const config::DeepSpeedConfig& config,
                                                      const ClientOptimizer& client, const EngineModel& model,
                                                      std::vector<optim::ParamGroup> groups);

}  // namespace deepspeed
