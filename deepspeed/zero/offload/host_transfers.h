// Transfers between the host, on which the optimizer steps, and the model's device. A slice's gradients
// arrive while the slice before is stepped; its new weights leave while the next one is stepped.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {

/// Makes the transfers of a step. Used by one thread.
class HostTransfers {
 public:
  /// device: the model's. On a CPU, which uses host memory, nothing is transferred unless `always_copies`.
  HostTransfers(at::Device device, bool pin_memory, bool always_copies);

  /// Announces the tensors that next() will return, in order. They are 1-D, on the device or already on the
  /// host. sends_back: some of them will be sent back.
  void expect(std::vector<at::Tensor> sources, bool sends_back = false);
  /// Waits for the next announced tensor and returns it in host memory. The tensor is valid until next() was
  /// called twice more.
  at::Tensor next();
  /// Starts copying the last result of next(), as the caller has changed it, to `to` on the device. The
  /// caller must not use the result any more.
  void send_back(const at::Tensor& to);

  /// Returns host memory, (numel), for values to send(). Call send() before the next outgoing().
  at::Tensor outgoing(int64_t numel, at::ScalarType dtype);
  /// Starts the copy of `from` to `to` on the device. from: the last result of outgoing(), or host memory
  /// that does not change before the device reaches work given after finish().
  void send(const at::Tensor& to, const at::Tensor& from);
  /// Makes the device's current stream wait for everything sent.
  void finish();

 private:
  /// Holds host memory, and the copy that uses it.
  struct Buffer {
    at::Tensor memory;  // bytes
    device::StreamEvent copied;
  };
  at::Tensor memory_of(Buffer& buffer, int64_t numel, at::ScalarType dtype) const;
  bool is_far(const at::Tensor& tensor) const { return always_copies_ || !tensor.is_cpu(); }
  void start_next();

  const bool pin_memory_;
  const bool always_copies_;
  device::SideStream in_, out_;
  std::vector<at::Tensor> sources_;
  std::vector<at::Tensor> arriving_;  // in host memory, for the sources that were started
  size_t num_taken_ = 0;
  size_t num_sent_ = 0;
  // Two buffers in use, two being filled, and two being sent back if some are.
  std::vector<Buffer> incoming_;
  std::array<Buffer, 2> outgoing_;
};

}  // namespace deepspeed::zero
