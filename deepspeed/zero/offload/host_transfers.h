// What a step in host memory exchanges with the device where the model is: the gradients of a slice come in
// while the one before is stepped, its new weights leave while the next one is.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {

/// Of one thread.
class HostTransfers {
 public:
  /// Where the device is a CPU, nothing need be copied: is_apart() is false, unless `always_copies`.
  HostTransfers(at::Device device, bool pin_memory, bool always_copies);

  /// Whether the device's memory is another one than the host's. If not, nothing else here is called.
  bool is_apart() const { return is_apart_; }

  /// What next() will return, one after the other: 1-D tensors, of the device, or of the host already.
  /// `sends_back`: some of them are to go back.
  void expect(std::vector<at::Tensor> sources, bool sends_back = false);
  /// The next one in host memory. It has its values until the second call from then.
  at::Tensor next();
  /// to = what next() returned last, of the device, as it is now; it is the caller's no longer.
  void send_back(const at::Tensor& to);

  /// (numel) in host memory for values that send() takes, which follows before the next call.
  at::Tensor outgoing(int64_t numel, at::ScalarType dtype);
  /// to = from, on the device; `from` is what outgoing() returned last, or host memory that stays as it is
  /// until what the device is given after finish().
  void send(const at::Tensor& to, const at::Tensor& from);
  /// What the device is given from here on comes after all that was sent.
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
  const bool is_apart_;
  device::SideStream in_, out_;
  std::vector<at::Tensor> sources_;
  std::vector<at::Tensor> arriving_;  // the host's, of the sources that were started
  size_t num_taken_ = 0;
  size_t num_sent_ = 0;
  // Two that are used, two that are on their way, and two that are on their way back, if any are.
  std::vector<Buffer> incoming_;
  std::array<Buffer, 2> outgoing_;
};

}  // namespace deepspeed::zero
