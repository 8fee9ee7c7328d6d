// The section pipeline.
#pragma once

#include <cstdint>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of pipeline parallelism.
struct PipelineConfig {
  Json stages = "auto";
  std::string partition = "best";
  bool seed_layers = false;
  int64_t activation_checkpoint_interval = 0;
  bool pipe_partitioned = true;
  bool grad_partitioned = true;
  bool use_reentrant = true;
};

const Table<PipelineConfig>& pipeline_table();

}  // namespace deepspeed::config
