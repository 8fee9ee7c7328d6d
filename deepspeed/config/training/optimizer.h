// The sections optimizer and scheduler. Types and parameters are resolved where the classes are known
// (optim/).
#pragma once

#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

struct OptimizerConfig {
  std::string type;
  Json params = Json::object();
  bool legacy_fusion = false;
};

struct SchedulerConfig {
  std::string type;
  Json params = Json::object();
};

const Table<OptimizerConfig>& optimizer_table();
const Table<SchedulerConfig>& scheduler_table();

}  // namespace deepspeed::config
