// The tables of the sections of this folder, each in the file of its section.
#pragma once

#include "deepspeed/config/parallel/sections.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

const Table<ActivationCheckpointingConfig>& activation_checkpointing_table();
const Table<PipelineConfig>& pipeline_table();
const Table<TensorParallelConfig>& tensor_parallel_table();
const Table<ExpertParallelConfig>& expert_parallel_table();
const Table<SparseAttentionConfig>& sparse_attention_table();

}  // namespace deepspeed::config
