// Work captured for a device, to be launched as a whole, any number of times: a CUDA graph.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <c10/core/Device.h>

namespace deepspeed::device {

class SideStream;

class DeviceGraph {
 public:
  /// Makes a graph without work.
  DeviceGraph() = default;
  /// Captures what `work` launches through `stream`, a side stream of the device. The device does not run the
  /// work yet. A backward of autograd in `work` must belong to a forward captured on the same stream. Tensors
  /// made by the work are in the graph's memory and have no values before a replay. Memory of `neighbour` is
  /// reused; both graphs must then replay in the order of their captures. Throws what `work` throws,
  /// c10::Error for work that cannot be captured (such as waiting for the device), and NotSupportedError
  /// without CUDA.
  static DeviceGraph capture(c10::Device device, const SideStream& stream, const std::function<void()>& work,
                             const DeviceGraph& neighbour = {});

  /// Launches the work on the device's current stream, with its captured addresses.
  void replay() const;

  /// Returns whether this thread is capturing.
  static bool is_capturing();

 private:
  std::optional<c10::Device> device_;
  std::shared_ptr<void> graph_;
};

}  // namespace deepspeed::device
