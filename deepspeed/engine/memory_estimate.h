// What a rank will hold of the model states under a config, before anything is allocated: the sizes of the
// partitions as ZeRO lays them out, padding included, and what the config's optimizer keeps of an element.
#pragma once

#include <iostream>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/model.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed::zero {

/// Bytes of one rank between steps, on its device; on a CPU rank that is the host.
struct ModelStatesEstimate {
  // As Engine::memory() reports them after the first step; without the buffers through which a disk is read
  // and written, and without the rest of the disk's last pages.
  MemoryBytes states;
  int64_t frozen_parameters = 0;  // of parameters that no optimizer updates
  int64_t total() const { return states.total() + frozen_parameters; }
};

/// config: as initialize() takes it, with an `optimizer` unless the model is only evaluated. The parameters
/// may be on the meta device: only their sizes are read. Throws what initialize() throws of the config, and
/// UsageError for a world size below 1.
ModelStatesEstimate estimate_model_states(const EngineModel& model, const config::ConfigSource& config,
                                          int world_size);
/// Prints it for the config at each ZeRO stage, without offload at stage 0.
void estimate_model_states_of_all_stages(const EngineModel& model, const Json& config, int world_size,
                                         std::ostream& out = std::cout);

}  // namespace deepspeed::zero
