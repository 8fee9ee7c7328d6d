// How activations that are computed again are kept meanwhile.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::checkpointing {

/// The arguments of configure(), and the keys of the config's section activation_checkpointing.
struct CheckpointOptions {
  bool partition_activations = false;     // each model-parallel rank keeps its part of the inputs of a region
  bool contiguous_checkpointing = false;  // in buffers of their own; needs partition_activations
  std::optional<int64_t> num_checkpoints = {};  // regions of a forward, for which the buffers have room
  bool checkpoint_in_cpu = false;               // inputs wait in the host's memory
  bool synchronize = false;                     // wait for the device at the borders of a region
  bool profile = false;                         // log the times of a region's forward and recomputation
};

}  // namespace deepspeed::checkpointing
