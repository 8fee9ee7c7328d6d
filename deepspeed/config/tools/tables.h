// The tables of the sections of this folder, each in the file of its section.
#pragma once

#include "deepspeed/config/table/table.h"
#include "deepspeed/config/tools/sections.h"

namespace deepspeed::config {

const Table<FlopsProfilerConfig>& flops_profiler_table();
const Table<CommsLoggerConfig>& comms_logger_table();
const Table<TimersConfig>& timers_table();
const Table<FileMonitorConfig>& tensorboard_table();
const Table<FileMonitorConfig>& csv_monitor_table();
const Table<WandbConfig>& wandb_table();
const Table<CometConfig>& comet_table();
const Table<NebulaConfig>& nebula_table();
const Table<ElasticityConfig>& elasticity_table();
const Table<AutotuningConfig>& autotuning_table();

}  // namespace deepspeed::config
