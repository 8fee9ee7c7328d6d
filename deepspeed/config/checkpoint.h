// The section checkpoint.
#pragma once

#include <string>

#include "deepspeed/config/table.h"

namespace deepspeed::config {

struct CheckpointConfig {
  std::string tag_validation = "Warn";  // Warn, Ignore or Fail
};

const Table<CheckpointConfig>& checkpoint_table();

}  // namespace deepspeed::config
