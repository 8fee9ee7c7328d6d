// CUDA graphs, a table of the CUDA library. Streams are the calling thread's current ones; errors of CUDA are
// c10::Error.
#pragma once

namespace deepspeed::device {

struct CudaGraphs {
  static constexpr const char* kName = "deepspeed_cuda_graphs";

  /// Begins to capture what the stream, which is not the default one, is given from here on. Memory comes
  /// from a pool that lives as long as the graph: that of `neighbour`, or, where this is null, a new one.
  /// Returns the graph.
  void* (*begin)(const void* neighbour);
  void (*end)(void* graph);
  /// Gives the stream the work that was captured.
  void (*replay)(void* graph);
  /// Gives back the graph, whether or not its capture has ended.
  void (*free)(void* graph);
};

}  // namespace deepspeed::device
