// The estimate says what a rank will hold of the model states under a config, before anything is allocated:
// the sizes of the partitions as ZeRO lays them out, padding included, and what the config's optimizer keeps
// of an element.
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

/// Counts the bytes of one rank by place.
struct PlacedBytes {
  int64_t on_device = 0;
  int64_t in_host = 0;  // of a model on the CPU all that is in memory
  int64_t on_disk = 0;
};

/// Counts the bytes of one rank between steps, without the buffers through which a disk is read and written,
/// and without the rest of the disk's last pages.
struct ModelStatesEstimate {
  // Holds the states as Engine::memory() reports them after the first step.
  MemoryBytes states;
  int64_t frozen_parameters = 0;  // in memory, of parameters that no optimizer updates
  // Says where all of it lies, frozen parameters included.
  PlacedBytes placed;
  /// Returns the bytes of states and frozen parameters in memory.
  int64_t total() const { return states.total() + frozen_parameters; }
};

/// Estimates for one config. config: as initialize() takes it, with an `optimizer` unless the model is only
/// evaluated. The parameters may be on the meta device: only their sizes are read. device: where the model
/// will be; default: where its parameters are, and the CPU for the meta device. Throws what initialize()
/// throws of the config, and UsageError for a world size below 1.
DEEPSPEED_API ModelStatesEstimate estimate_model_states(const EngineModel& model,
                                                        const config::ConfigSource& config, int world_size,
                                                        std::optional<at::DeviceType> device = {});
/// Prints the estimate for the config at each ZeRO stage, with the offload that the stage has.
DEEPSPEED_API void estimate_model_states_of_all_stages(const EngineModel& model, const Json& config,
                                                       int world_size, std::ostream& out = std::cout,
                                                       std::optional<at::DeviceType> device = {});

}  // namespace deepspeed::zero
