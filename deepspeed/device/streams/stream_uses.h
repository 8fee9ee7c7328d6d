// Who uses something on which streams: memory of the host, say, that must not change until all have read it.
#pragma once

#include <map>
#include <utility>

#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::device {

/// One thread at a time uses it.
class StreamUses {
 public:
  /// Marks now, on the current stream of a device (a CPU has none), in place of that stream's earlier mark.
  void note(c10::Device device);
  /// Blocks until all streams have passed their marks.
  void wait() const;

 private:
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, StreamEvent> marks_;
};

}  // namespace deepspeed::device
