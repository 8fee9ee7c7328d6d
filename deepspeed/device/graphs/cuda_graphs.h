// CUDA graphs, a table of the CUDA library. Streams are the calling thread's current ones. CUDA errors are
// c10::Error.
#pragma once

namespace deepspeed::device {

struct CudaGraphs {
  static constexpr const char* kName = "deepspeed_cuda_graphs";

  /// Starts capturing all further work on the current stream, which must not be the default one. Memory comes
  /// from a pool that exists as long as the graph: that of `neighbour`, or a new one if this is null. Returns
  /// the graph.
  void* (*begin)(const void* neighbour);
  void (*end)(void* graph);
  /// Launches the captured work on the current stream, without waiting for it.
  void (*replay)(void* graph);
  /// Destroys the graph, whether or not its capture has ended.
  void (*free)(void* graph);
};

}  // namespace deepspeed::device
