// The CUDA graphs of one shape of a forward: capture and replay.
//
// The graphs use fixed memory. A call copies its tensors there, replays the forward and returns copies of the
// outputs, so the caller may keep them. One autograd node stands for the whole forward. Its backward copies
// in the outputs' gradients, replays the backward graph, and returns the gradients of inputs and weights. The
// graphs still hold these gradients, so autograd copies what it accumulates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/graphs/device_graph.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/step/forward_call.h"

namespace deepspeed {

/// Holds the CUDA graphs for calls with one shape of tensors, and their memory.
class ForwardGraphs : public std::enable_shared_from_this<ForwardGraphs> {
 public:
  /// Captures `forward` for the call, and its backward. Throws UsageError, naming the key cuda_graphs, if one
  /// of them cannot be captured.
  ForwardGraphs(const EngineModel& model, const ForwardCall& call, const RunForward& forward);

  /// Replays the forward. At most one backward may follow, before the next run.
  ForwardResult run(const ForwardCall& call);

 private:
  class Replay;

  void capture_forward(c10::Device device, const device::SideStream& stream, const RunForward& forward);
  void capture_backward(c10::Device device, const device::SideStream& stream);

  std::vector<c10::Storage> memory_;  // of weights and buffers: a backward may need it after they moved
  device::DeviceGraph forward_, backward_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> leaves_;  // tensors whose gradients the backward returns: the weights, then inputs
  ForwardResult made_;
  std::vector<size_t> with_gradient_;  // indices of outputs that need a gradient
  std::vector<at::Tensor> grad_outputs_;
  std::vector<at::Tensor> gradients_;  // of the leaves
  int64_t num_forwards_ = 0;
  int64_t last_backward_ = 0;  // number of the forward that the last backward belongs to
};

}  // namespace deepspeed
