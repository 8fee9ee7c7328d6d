// The stages of a pipeline fit each other only where all ranks were given the same layers, cut alike.
#pragma once

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/pipe/module/pipeline_module.h"

namespace deepspeed::pipe {

/// Compares the axes over which the ranks lie. Throws UsageError on all of them where two ranks have others.
/// Collective.
void require_same_topology(const comm::ProcessGroup& all, const ProcessTopology& topology);

/// Compares the topology, the classes of all layers and the stages that hold them over the ranks. Throws
/// UsageError on all of them, with the first layer that differs, where two ranks have others. Collective.
void require_same_layers(const comm::ProcessGroup& all, const PipelineModule& module);

}  // namespace deepspeed::pipe
