// The table of the top level.
#pragma once

#include "deepspeed/config/config.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

const Table<DeepSpeedConfig>& top_level_table();

}  // namespace deepspeed::config
