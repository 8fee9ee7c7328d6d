#include "deepspeed/device/streams/stream_event.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace deepspeed::device {

StreamEvent::StreamEvent(c10::Device device) {
  if (device.is_cpu()) return;
  event_.emplace(device.type());
  event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

StreamEvent::StreamEvent(c10::Stream stream) {
  event_.emplace(stream.device_type());
  event_->record(stream);
}

void StreamEvent::wait() const {
  if (event_) event_->synchronize();
}

void StreamEvent::hold(c10::Stream stream) const {
  if (event_) event_->block(stream);
}

void StreamEvent::hold_current_stream() const {
  if (event_) hold(c10::impl::VirtualGuardImpl(event_->device_type()).getStream(event_->device()));
}

}  // namespace deepspeed::device
