// A copy of a device tensor in host memory, made while the device computes.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::activation {

/// Holds the elements of a tensor on the host. The caller does not wait for the copy. The tensor's own memory
/// may be reused as soon as the copy is done.
class HostCopy {
 public:
  /// Starts the copy. tensor: dense, with any strides. The copy of a CPU tensor is made at once.
  explicit HostCopy(const at::Tensor& tensor);

  /// Starts the copy back to the device, so that fetch() finds it done. Returns false if it has already
  /// started.
  bool prefetch();
  /// Returns the tensor on its device, for the current stream. Throws UsageError if the original was written
  /// in place since, because the copy may include that write.
  at::Tensor fetch();
  int64_t bytes() const { return static_cast<int64_t>(host_.nbytes()); }

 private:
  void check_version() const;

  at::Tensor host_;
  at::TensorOptions options_;
  c10::VariableVersion source_;  // keeps only the counter alive
  uint32_t version_;
  CountedTensor counted_;
  device::StreamEvent copied_;
  at::Tensor back_;
  device::StreamEvent is_back_;
};

}  // namespace deepspeed::activation
