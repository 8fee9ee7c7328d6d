// Decides which parameters the optimizer updates, in which groups and with which hyperparameters.
#pragma once

#include <vector>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed {

struct OptimizerGroups {
  std::vector<std::vector<NamedTensor>> tensors;  // empty: there is no optimizer
  std::vector<optim::ParamGroup> options;         // one per group
  std::vector<size_t> given;  // one per group: index of the program's group that it came from
};

/// Returns the groups of `client`, of `model_parameters`, or one group of all trainable parameters. `client`
/// is the program's own optimizer. Groups without trainable parameters are dropped. With the config's Muon a
/// group that does not set use_muon becomes two: matrices, and the rest. In an fp32 model a group that also
/// has fp64 parameters becomes two. Throws UsageError for a tensor that is not the model's.
OptimizerGroups make_param_groups(const EngineModel& model, const config::DeepSpeedConfig& config,
                                  const InitializeOptions& options, torch::optim::Optimizer* client);

}  // namespace deepspeed
