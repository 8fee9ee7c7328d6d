// A moment in what a device was given to do.
#pragma once

#include <optional>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace deepspeed::device {

class StreamEvent {
 public:
  /// Makes an event for which nothing has to wait.
  StreamEvent() = default;
  /// Marks now, on the current stream of the device (a CPU has none).
  explicit StreamEvent(c10::Device device);
  /// Marks now, on a stream.
  explicit StreamEvent(c10::Stream stream);

  /// Blocks until all that was given to the stream before the event is done. Any thread may call.
  void wait() const;
  /// Makes further work of a stream wait for the event; the caller goes on.
  void hold(c10::Stream stream) const;
  /// Makes further work of the current stream of the event's device wait for the event.
  void hold_current_stream() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace deepspeed::device
