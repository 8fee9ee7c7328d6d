// Moves data between the host, where the optimizer steps, and the device, where the model is. The gradients
// of a slice come in while the slice before is stepped; its new weights leave while the next one is stepped.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {

/// Makes the transfers of a step; one thread uses it.
class HostTransfers {
 public:
  /// device: where the model is. On a CPU, whose memory is the host's, nothing is to be transferred, unless
  /// `always_copies`.
  HostTransfers(at::Device device, bool pin_memory, bool always_copies);

  /// Announces the tensors that next() will return, one after the other: 1-D, on the device or on the host
  /// already. sends_back: some of them are to go back.
  void expect(std::vector<at::Tensor> sources, bool sends_back = false);
  /// Waits for the next announced tensor and returns it in host memory, valid until the second call from
  /// then.
  at::Tensor next();
  /// Starts the copy of what next() returned last, as it is now, to `to` on the device. The caller must not
  /// use that memory any more.
  void send_back(const at::Tensor& to);

  /// Returns host memory, (numel), for values that send() takes; send() follows before the next call.
  at::Tensor outgoing(int64_t numel, at::ScalarType dtype);
  /// Starts the copy of `from` to `to` on the device. from: what outgoing() returned last, or host memory
  /// that does not change until the device reaches what it is given after finish().
  void send(const at::Tensor& to, const at::Tensor& from);
  /// Makes the device's current stream wait for all that was sent.
  void finish();

 private:
  /// Host memory, and the copy that uses it.
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
  // Holds two buffers in use, two on their way in, and two on their way back where some are sent back.
  std::vector<Buffer> incoming_;
  std::array<Buffer, 2> outgoing_;
};

}  // namespace deepspeed::zero
