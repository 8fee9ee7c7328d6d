// The tables of this folder's sections, each defined in its section's file.
#pragma once

#include "deepspeed/config/table/table.h"
#include "deepspeed/config/training/sections.h"

namespace deepspeed::config {

const Table<OptimizerConfig>& optimizer_table();
const Table<SchedulerConfig>& scheduler_table();
const Table<Fp16Section>& fp16_table();
const Table<Bf16Config>& bf16_table();
const Table<AmpConfig>& amp_table();
const Table<TorchAutocastConfig>& torch_autocast_table();
const Table<DataTypesConfig>& data_types_table();
const Table<CheckpointConfig>& checkpoint_table();
const Table<ProgressiveLayerDropConfig>& progressive_layer_drop_table();
const Table<CudaGraphsConfig>& cuda_graphs_table();
std::vector<Field> compile_keys();
std::vector<Field> hybrid_engine_keys();

}  // namespace deepspeed::config
