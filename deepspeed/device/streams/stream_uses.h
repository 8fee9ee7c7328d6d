// Records which streams use something, for instance host memory that must not change until all have read it.
#pragma once

#include <map>
#include <utility>

#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::device {

/// Keeps one mark per stream. Use it from one thread at a time.
class StreamUses {
 public:
  /// Marks the current point of a device's current stream (a CPU has none). Replaces that stream's earlier
  /// mark.
  void note(c10::Device device);
  /// Blocks until all streams have passed their marks.
  void wait() const;

 private:
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, StreamEvent> marks_;
};

}  // namespace deepspeed::device
