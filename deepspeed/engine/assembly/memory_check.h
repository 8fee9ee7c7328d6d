// Whether a model fits before anything of the engine is allocated.
#pragma once

#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// On ranks whose model lies in the host's memory: throws UsageError with the numbers where this rank's
/// weights, gradients and fp32 weights take more than it has, counting what the model gives free when it is
/// partitioned. `groups`: what the optimizer updates. num_shards: ranks that hold it once. Where something is
/// offloaded nothing is checked.
void check_host_memory(const EngineModel& model, const std::vector<std::vector<NamedTensor>>& groups,
                       const config::DeepSpeedConfig& config, const comm::World& world, int num_shards);

}  // namespace deepspeed
