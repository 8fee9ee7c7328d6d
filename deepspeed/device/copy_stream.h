// Copies between a device and the host that run beside the device's own work.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "deepspeed/device/stream_event.h"

namespace deepspeed::device {

class CopyStream {
 public:
  /// A CPU's copies are made at once.
  explicit CopyStream(c10::Device device);

  /// destination = source, of one size, after all that the device's current stream was given so far. Returns
  /// the moment at which it is done; both tensors must stay as they are until then. Host memory that is not
  /// page-locked makes the caller wait.
  StreamEvent start(const at::Tensor& destination, const at::Tensor& source);
  /// The moment at which all that was started is done.
  StreamEvent now() const { return stream_ ? StreamEvent(*stream_) : StreamEvent(); }

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace deepspeed::device
