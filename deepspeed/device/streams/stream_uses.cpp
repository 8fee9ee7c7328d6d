#include "deepspeed/device/streams/stream_uses.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace deepspeed::device {

void StreamUses::note(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  marks_[{stream.device_index(), stream.id()}] = StreamEvent(stream);
}

void StreamUses::wait() const {
  for (const auto& [stream, mark] : marks_) mark.wait();
}

}  // namespace deepspeed::device
