#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/tables/tables.h"

namespace deepspeed::simulated {

const device::CudaGraphs cuda_graphs{
    .begin = [](const void* neighbour) -> void* { return new Graph(static_cast<const Graph*>(neighbour)); },
    .end = [](void* graph) { static_cast<Graph*>(graph)->end(); },
    .replay = [](void* graph) { static_cast<Graph*>(graph)->replay(); },
    .free = [](void* graph) { delete static_cast<Graph*>(graph); }};

}  // namespace deepspeed::simulated
