// A moment in what a device was given to do.
#pragma once

#include <optional>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace deepspeed::device {

class StreamEvent {
 public:
  /// Nothing to wait for.
  StreamEvent() = default;
  /// Now, on the current stream of the device (a CPU has none).
  explicit StreamEvent(c10::Device device);
  /// Now, on a stream.
  explicit StreamEvent(c10::Stream stream);

  /// Blocks until all that was given to the stream before the event is done. Any thread may call.
  void wait() const;
  /// The same for what a stream is given from here on; the caller goes on.
  void hold(c10::Stream stream) const;
  /// hold() for the current stream of the event's device.
  void hold_current_stream() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace deepspeed::device
