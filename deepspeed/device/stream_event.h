// A moment in what a device was given to do.
#pragma once

#include <optional>

#include <c10/core/Event.h>

namespace deepspeed::device {

class StreamEvent {
 public:
  /// Nothing to wait for.
  StreamEvent() = default;
  /// Now, on the current stream of the device (a CPU has none).
  explicit StreamEvent(c10::Device device);

  /// Blocks until all that was given to the stream before the event is done. Any thread may call.
  void wait() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace deepspeed::device
