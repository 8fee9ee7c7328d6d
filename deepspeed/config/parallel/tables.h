// The tables of this folder's sections, each defined in its section's file.
#pragma once

#include "deepspeed/config/parallel/sections.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

const Table<ActivationCheckpointingConfig>& activation_checkpointing_table();
const Table<PipelineConfig>& pipeline_table();
std::vector<Field> tensor_parallel_keys();
std::vector<Field> expert_parallel_keys();
std::vector<Field> sparse_attention_keys();

}  // namespace deepspeed::config
