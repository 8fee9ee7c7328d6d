// Which parameters the optimizer updates, in which groups, with which hyperparameters.
#pragma once

#include <vector>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/assembly/build.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed {

struct OptimizerGroups {
  std::vector<std::vector<NamedTensor>> tensors;  // empty: no optimizer was asked for
  std::vector<optim::ParamGroup> options;         // of the same size
  std::vector<size_t> given;                      // of the same size: which of the program's groups it is of
};

/// From the groups of `client`, the program's own optimizer, else from `model_parameters`, else one group of
/// all parameters that need a gradient. Groups without trainable parameters are left out. The config's Muon
/// gets two groups in place of one that does not say use_muon: of matrices, and of the rest. A model in fp32
/// gets two in place of one that has parameters of fp64 as well. Throws UsageError for a tensor that is not
/// the model's.
OptimizerGroups make_param_groups(const EngineModel& model, const config::DeepSpeedConfig& config,
                                  const InitializeOptions& options, torch::optim::Optimizer* client);

}  // namespace deepspeed
