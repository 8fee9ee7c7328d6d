// The tables of this folder's sections, each defined in its section's file.
#pragma once

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/table.h"
#include "deepspeed/config/zero/sections.h"

namespace deepspeed::config {

const Table<ZeroConfig>& zero_table();
const Table<AioConfig>& aio_table();
const Table<LeafModuleConfig>& leaf_module_table();
const Table<OffloadParamConfig>& offload_param_table();
const Table<OffloadOptimizerConfig>& offload_optimizer_table();
const Table<LocoConfig>& loco_table();
std::vector<Field> zenflow_keys();

/// Converts "zero_optimization": true or false (deprecated) to a section with stage 1 or 0.
Json zero_from_truth_value(const Json& given);

}  // namespace deepspeed::config
