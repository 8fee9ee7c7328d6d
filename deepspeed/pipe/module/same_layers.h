// Checks that all ranks were given the same layers, cut in the same way. Stages do not fit each other
// otherwise.
#pragma once

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/pipe/module/pipeline_module.h"

namespace deepspeed::pipe {

/// Compares the topologies of all ranks. Throws UsageError on all of them if two differ. Collective.
void require_same_topology(const comm::ProcessGroup& all, const ProcessTopology& topology);

/// Compares the topology, the classes of all layers and their stages over the ranks. Throws UsageError on all
/// ranks if two differ, with the first layer that differs. Collective.
void require_same_layers(const comm::ProcessGroup& all, const PipelineModule& module);

}  // namespace deepspeed::pipe
