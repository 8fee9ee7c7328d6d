// The section activation_checkpointing.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of activations that backward computes again.
struct ActivationCheckpointingConfig {
  bool partition_activations = false;
  bool cpu_checkpointing = false;
  bool contiguous_memory_optimization = false;
  std::optional<int64_t> number_checkpoints;
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;
};

const Table<ActivationCheckpointingConfig>& activation_checkpointing_table();

}  // namespace deepspeed::config
