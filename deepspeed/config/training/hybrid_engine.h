// The section hybrid_engine.
#pragma once

#include <cstdint>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of training and generation in turn.
struct HybridEngineConfig {
  bool enabled = false;
  int64_t max_out_tokens = 512;
  int64_t inference_tp_size = 1;
  bool release_inference_cache = false;
  bool pin_parameters = true;
  int64_t tp_gather_partition_size = 8;
  bool enable_cuda_graph = false;
};

const Table<HybridEngineConfig>& hybrid_engine_table();

}  // namespace deepspeed::config
