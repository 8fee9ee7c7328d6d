// The tables of this folder's sections, each defined in its section's file.
#pragma once

#include "deepspeed/config/table/table.h"
#include "deepspeed/config/tools/sections.h"

namespace deepspeed::config {

const Table<FlopsProfilerConfig>& flops_profiler_table();
const Table<CommsLoggerConfig>& comms_logger_table();
const Table<TimersConfig>& timers_table();
const Table<FileMonitorConfig>& tensorboard_table();
const Table<FileMonitorConfig>& csv_monitor_table();
const Table<ElasticRules>& elasticity_table();
std::vector<Field> wandb_keys();
std::vector<Field> comet_keys();
std::vector<Field> nebula_keys();
std::vector<Field> autotuning_keys();

}  // namespace deepspeed::config
