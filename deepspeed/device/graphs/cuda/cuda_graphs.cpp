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
  // During a capture autograd's thread launches work and NCCL's thread queries events, so the mode must be
  // thread-local.
  graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  return graph.release();
}

/// Suppresses warnings, for instance that a graph is empty, which is intended here.
struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// After a failed capture, capture_end() throws before it removes the graph's pool from the allocator and its
// own state from the generator. The process could then draw no random numbers and would release no memory. An
// empty capture in its place ends normally and cleans up all of that.
void end(void* graph) {
  auto* const captured = static_cast<CUDAGraph*>(graph);
  try {
    captured->capture_end();
  } catch (...) {
    const auto failure = std::current_exception();
    cudaGetLastError();  // clears the capture's error; the exception reports it
    try {
      NoWarnings none;
      const c10::WarningUtils::WarningHandlerGuard guard(&none);
      C10_CUDA_CHECK(
          cudaStreamBeginCapture(at::cuda::getCurrentCUDAStream(), cudaStreamCaptureModeThreadLocal));
      captured->capture_end();
    } catch (const c10::Error&) {
      cudaGetLastError();  // the capture had ended and failed later
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
