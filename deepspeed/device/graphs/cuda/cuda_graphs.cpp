#include "deepspeed/device/graphs/cuda_graphs.h"

#include <ATen/cuda/CUDAGraph.h>

#include "deepspeed/base/export.h"

namespace deepspeed::device {
namespace {

using at::cuda::CUDAGraph;

void* begin(const void* neighbour) {
  auto graph = std::make_unique<CUDAGraph>();
  // CUDAGraph::pool() does not change the graph, but is not const.
  auto* const beside = static_cast<CUDAGraph*>(const_cast<void*>(neighbour));
  const c10::MempoolId_t pool = beside != nullptr ? beside->pool() : c10::MempoolId_t{0, 0};
  // Autograd's thread launches, and NCCL's asks for events, beside the thread that captures.
  graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  return graph.release();
}

void end(void* graph) { static_cast<CUDAGraph*>(graph)->capture_end(); }
void replay(void* graph) { static_cast<CUDAGraph*>(graph)->replay(); }
void free(void* graph) { delete static_cast<CUDAGraph*>(graph); }

}  // namespace

extern "C" {
DEEPSPEED_API extern const CudaGraphs deepspeed_cuda_graphs;
const CudaGraphs deepspeed_cuda_graphs{.begin = &begin, .end = &end, .replay = &replay, .free = &free};
}

}  // namespace deepspeed::device
