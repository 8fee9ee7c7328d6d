// The section zero_optimization.zenflow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options that update important gradients at once and the others on the host, later.
struct ZenflowConfig {
  double topk_ratio = 0.1;
  std::string select_strategy = "auto";
  Json select_interval = "auto";
  Json update_interval = "auto";
  bool overlap_step = false;
  bool offload = false;
  double auto_ratio = 0.99;
  int64_t full_warm_up_rounds = 0;
  double pt_reserved_cores_perc = 0.5;
  std::optional<int64_t> steps_per_epoch;
};

const Table<ZenflowConfig>& zenflow_table();

}  // namespace deepspeed::config
