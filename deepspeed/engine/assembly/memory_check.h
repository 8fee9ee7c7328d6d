// Checks whether a model fits before the engine allocates anything.
#pragma once

#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// Throws UsageError, with the numbers, if this rank has too little host memory. It compares the rank's
/// weights, gradients and fp32 weights with the free memory plus what partitioning frees. Checks only models
/// in host memory, and nothing if anything is offloaded. `groups`: the parameters that the optimizer updates.
/// num_shards: the number of ranks that together hold one copy of what the ZeRO stage partitions.
void check_host_memory(const EngineModel& model, const std::vector<std::vector<NamedTensor>>& groups,
                       const config::DeepSpeedConfig& config, const comm::World& world, int num_shards);

}  // namespace deepspeed
