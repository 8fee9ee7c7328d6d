#include "deepspeed/device/copy_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace deepspeed::device {

CopyStream::CopyStream(c10::Device device) : device_(device) {
  if (!device.is_cpu())
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false);
}

StreamEvent CopyStream::start(const at::Tensor& destination, const at::Tensor& source) {
  if (!stream_) {
    destination.copy_(source);
    return {};
  }
  StreamEvent(device_).hold(*stream_);
  const c10::StreamGuard guard(*stream_);
  destination.copy_(source, /*non_blocking=*/true);
  // The allocator gives the memory of a tensor that dies to nobody before this stream is done with it.
  for (const at::Tensor* tensor : {&destination, &source}) {
    if (!tensor->is_cpu()) tensor->record_stream(*stream_);
  }
  return StreamEvent(*stream_);
}

}  // namespace deepspeed::device
