// Sections that divide a model or reduce its memory: activation_checkpointing, pipeline, tensor_parallel,
// expert_parallel and sparse_attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Holds options of activations that backward recomputes.
struct ActivationCheckpointingConfig {
  bool partition_activations = false;
  bool cpu_checkpointing = false;
  bool contiguous_memory_optimization = false;
  std::optional<int64_t> number_checkpoints;
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;
};

/// Holds options of pipeline parallelism.
struct PipelineConfig {
  std::optional<int64_t> stages;  // "auto" in a config means none
  std::string partition = "best";
  bool seed_layers = false;
  int64_t activation_checkpoint_interval = 0;
  bool pipe_partitioned = true;
  bool grad_partitioned = true;
  bool use_reentrant = true;
  std::string schedule = "1f1b";
  int64_t model_chunks = 1;
};

}  // namespace deepspeed::config
