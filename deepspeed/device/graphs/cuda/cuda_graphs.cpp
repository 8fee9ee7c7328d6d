#include "deepspeed/device/graphs/cuda_graphs.h"

#include <exception>
#include <memory>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>

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

/// Says nothing: that a graph is empty, say, which is meant.
struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Of a capture that has failed capture_end() throws before it takes the graph's pool from the allocator, and
// its own state from the generator: the process would draw no random number any more, and give back no
// memory. An empty capture in its place ends well, and with it all of that.
void end(void* graph) {
  auto* const captured = static_cast<CUDAGraph*>(graph);
  try {
    captured->capture_end();
  } catch (...) {
    const auto failure = std::current_exception();
    cudaGetLastError();  // what the capture has noted is told by the exception
    try {
      NoWarnings none;
      const c10::WarningUtils::WarningHandlerGuard guard(&none);
      C10_CUDA_CHECK(
          cudaStreamBeginCapture(at::cuda::getCurrentCUDAStream(), cudaStreamCaptureModeThreadLocal));
      captured->capture_end();
    } catch (const c10::Error&) {
      cudaGetLastError();  // it had ended, and failed later
    }
    std::rethrow_exception(failure);
  }
}

void replay(void* graph) { static_cast<CUDAGraph*>(graph)->replay(); }
void free(void* graph) { delete static_cast<CUDAGraph*>(graph); }

}  // namespace

extern "C" {
DEEPSPEED_API extern const CudaGraphs deepspeed_cuda_graphs;
const CudaGraphs deepspeed_cuda_graphs{.begin = &begin, .end = &end, .replay = &replay, .free = &free};
}

}  // namespace deepspeed::device
