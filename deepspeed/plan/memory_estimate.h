// Estimates what model states a rank will hold under a config, before anything is allocated. It uses ZeRO's
// partition sizes, padding included, and what the config's optimizer keeps per element.
#pragma once

#include <cstdint>
#include <iostream>
#include <optional>

#include <c10/core/DeviceType.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/table/source.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/memory_bytes.h"

namespace deepspeed::zero {

/// Holds one rank's bytes by kind of memory.
struct PlacedBytes {
  int64_t on_device = 0;
  int64_t in_host = 0;  // for a model on the CPU everything in memory
  int64_t on_disk = 0;
};

/// Holds one rank's bytes between steps, without buffers for disk access and unused parts of last disk pages.
struct ModelStatesEstimate {
  // The states as Engine::memory() reports them after the first step.
  MemoryBytes states;
  int64_t frozen_parameters = 0;  // in memory, for parameters that no optimizer updates
  // All these bytes by kind of memory, frozen parameters included.
  PlacedBytes placed;
  /// Returns the bytes of states and frozen parameters in memory.
  int64_t total() const { return states.total() + frozen_parameters; }
};

/// Estimates a rank's model states under one config. config: as passed to initialize(), with an `optimizer`
/// unless the model is only evaluated. The parameters may be on the meta device: only their sizes are read.
/// device: where the model will be. The default is the device of its parameters, and the CPU for the meta
/// device. Throws what initialize() throws for the config, and UsageError for a world size below 1.
DEEPSPEED_API ModelStatesEstimate estimate_model_states(const EngineModel& model,
                                                        const config::ConfigSource& config, int world_size,
                                                        std::optional<at::DeviceType> device = {});
/// Prints the estimate for the config at each ZeRO stage. Offload sections are used as far as the stage
/// supports them.
DEEPSPEED_API void estimate_model_states_of_all_stages(const EngineModel& model, const Json& config,
                                                       int world_size, std::ostream& out = std::cout,
                                                       std::optional<at::DeviceType> device = {});

}  // namespace deepspeed::zero
