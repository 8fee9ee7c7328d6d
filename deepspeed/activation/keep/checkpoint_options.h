// The options of activation checkpointing: DeepSpeed's config section activation_checkpointing.
#pragma once

#include <cstdint>
#include <optional>

namespace deepspeed {

struct CheckpointOptions {
  /// Each model-parallel rank keeps its 1/n of each input of a region; the parts are gathered before the
  /// recomputation. The inputs must be alike on these ranks.
  bool partition_activations = false;
  /// The parts lie in buffers that are allocated once. Needs partition_activations and num_checkpoints.
  bool contiguous_checkpointing = false;
  /// How many regions wait for their backward at a time: the size of the contiguous buffers, in regions.
  std::optional<int64_t> num_checkpoints = std::nullopt;
  /// Inputs of regions, or the parts of them, wait on the host; the copies run beside compute. Tensors of the
  /// CPU are there already.
  bool checkpoint_in_cpu = false;
  /// Waits for the device at the start and the end of each region, forward and backward.
  bool synchronize = false;
  /// Logs the milliseconds of each region's forward and recomputation.
  bool profile = false;
};

}  // namespace deepspeed
