// The options of activation checkpointing: DeepSpeed's config section activation_checkpointing.
#pragma once

#include <cstdint>
#include <optional>

namespace deepspeed {

struct CheckpointOptions {
  /// Makes each of n model-parallel ranks keep only 1/n of each input of a region. A region is what one
  /// checkpoint() call runs. The parts are gathered before the recomputation. The inputs must be equal on
  /// these ranks.
  bool partition_activations = false;
  /// Stores the parts in buffers that are allocated once. Needs partition_activations and num_checkpoints.
  bool contiguous_checkpointing = false;
  /// Sets how many regions wait for backward at once: the slots in each contiguous buffer.
  std::optional<int64_t> num_checkpoints = std::nullopt;
  /// Keeps inputs of regions, or their parts, on the host; copies overlap compute. CPU tensors are there
  /// already.
  bool checkpoint_in_cpu = false;
  /// Waits for the device at both ends of each region, in forward and backward.
  bool synchronize = false;
  /// Logs the milliseconds of each region's forward and recomputation.
  bool profile = false;
};

}  // namespace deepspeed
