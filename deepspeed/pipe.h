// Pipeline parallelism: `deepspeed.pipe`. Programs that use it include this besides deepspeed.h.
#pragma once

#include "deepspeed/initialize.h"
#include "deepspeed/pipe/initialize_pipeline.h"
#include "deepspeed/pipe/module/pipeline_module.h"
#include "deepspeed/pipe/module/pipeline_parallel_grid.h"
#include "deepspeed/pipe/topology/process_topology.h"

namespace deepspeed::pipe {
using deepspeed::EvalBatchOptions;
using deepspeed::EvalBatchResult;
using deepspeed::ParallelRanks;
using deepspeed::PipeDataParallelTopology;
using deepspeed::PipelineEngine;
using deepspeed::PipelineError;
using deepspeed::PipelineParallelGrid;
using deepspeed::PipeModelDataParallelTopology;
using deepspeed::ProcessTopology;
}  // namespace deepspeed::pipe
