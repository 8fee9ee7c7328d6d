#include "deepspeed/device/stream_event.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace deepspeed::device {

StreamEvent::StreamEvent(c10::Device device) {
  if (device.is_cpu()) return;
  event_.emplace(device.type());
  event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void StreamEvent::wait() const {
  if (event_) event_->synchronize();
}

}  // namespace deepspeed::device
