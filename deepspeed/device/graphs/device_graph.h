// Work that a device was not given yet, to be given as a whole, as often as is asked for: a CUDA graph.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <c10/core/Device.h>

namespace deepspeed::device {

class SideStream;

class DeviceGraph {
 public:
  /// A graph without work.
  DeviceGraph() = default;
  /// Captures what `work` gives to the device by way of `stream`, a side stream of it; the device does not do
  /// it yet. A backward of autograd in it must be of a forward that was captured by the same
  /// stream. Tensors that the work makes lie in memory of the graph, and have no values before a replay.
  /// Memory of `neighbour` is used again; both then replay in the order of their captures. Throws what `work`
  /// throws, c10::Error where it does what cannot be captured (it waits for the device), and
  /// NotSupportedError without CUDA.
  static DeviceGraph capture(c10::Device device, const SideStream& stream, const std::function<void()>& work,
                             const DeviceGraph& neighbour = {});

  /// Gives the work to the device's current stream, with the addresses that it had.
  void replay() const;

  /// Whether a capture of this thread is under way.
  static bool is_capturing();

 private:
  std::optional<c10::Device> device_;
  std::shared_ptr<void> graph_;
};

}  // namespace deepspeed::device
