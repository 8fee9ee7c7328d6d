#include "deepspeed/device/side_stream.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace deepspeed::device {
namespace {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void order(const c10::Stream& before, const c10::Stream& after) {
  c10::Event event(before.device_type());
  event.record(before);
  event.block(after);
}

}  // namespace

SideStream::Scope::Scope(const std::optional<c10::Stream>& stream) {
  if (stream) former_ = c10::impl::VirtualGuardImpl(stream->device_type()).exchangeStream(*stream);
}

SideStream::Scope::~Scope() {
  if (former_) c10::impl::VirtualGuardImpl(former_->device_type()).exchangeStream(*former_);
}

SideStream::SideStream(c10::Device device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

SideStream::Scope SideStream::enter() const {
  if (stream_) order(current_stream(stream_->device()), *stream_);
  return Scope(stream_);
}

void SideStream::join() const {
  if (stream_) order(*stream_, current_stream(stream_->device()));
}

}  // namespace deepspeed::device
