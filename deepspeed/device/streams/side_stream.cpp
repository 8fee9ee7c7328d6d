#include "deepspeed/device/streams/side_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace deepspeed::device {

SideStream::Scope::Scope(const std::optional<c10::Stream>& stream) {
  if (stream) former_ = c10::impl::VirtualGuardImpl(stream->device_type()).exchangeStream(*stream);
}

SideStream::Scope::~Scope() {
  if (former_) c10::impl::VirtualGuardImpl(former_->device_type()).exchangeStream(*former_);
}

SideStream::SideStream(c10::Device device, Use use) {
  if (device.is_cpu()) return;
  // The pool hands out 32 streams per priority in turn. NCCL and everything else use low priority.
  const bool is_high_priority = use == Use::kCapture;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, is_high_priority);
}

SideStream::Scope SideStream::enter() const {
  if (stream_) StreamEvent(stream_->device()).hold(*stream_);
  return Scope(stream_);
}

StreamEvent SideStream::copy(const at::Tensor& destination, const at::Tensor& source) const {
  const Scope scope = enter();
  return copy_here(destination, source);
}

StreamEvent SideStream::copy_at_once(const at::Tensor& destination, const at::Tensor& source) const {
  const Scope scope(stream_);
  return copy_here(destination, source);
}

StreamEvent SideStream::copy_here(const at::Tensor& destination, const at::Tensor& source) const {
  destination.copy_(source, /*non_blocking=*/stream_.has_value());
  // If a tensor dies early, the allocator waits for this stream before it reuses the memory.
  for (const at::Tensor* tensor : {&destination, &source}) {
    if (stream_ && !tensor->is_cpu()) tensor->record_stream(*stream_);
  }
  return now();
}

}  // namespace deepspeed::device
