// A point in a device's queue of work.
#pragma once

#include <optional>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace deepspeed::device {

class StreamEvent {
 public:
  /// Makes an event that nothing waits for.
  StreamEvent() = default;
  /// Marks the current point of the device's current stream (a CPU has none).
  explicit StreamEvent(c10::Device device);
  /// Marks the current point of a stream.
  explicit StreamEvent(c10::Stream stream);

  /// Blocks until all work before the event is done. Thread-safe.
  void wait() const;
  /// Makes further work of a stream wait for the event, without blocking the caller.
  void hold(c10::Stream stream) const;
  /// Makes further work of the current stream of the event's device wait for the event.
  void hold_current_stream() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace deepspeed::device
