// A second work queue of a device, besides the current stream, for copies that overlap compute.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::device {

class SideStream {
 public:
  /// Directs this thread's work for the device to the side stream while it exists. A default-constructed
  /// scope changes nothing.
  class Scope {
   public:
    Scope() = default;
    explicit Scope(const std::optional<c10::Stream>& stream);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::optional<c10::Stream> former_;
  };

  /// Says what the stream is for. A process has few streams of each priority, shared by its side streams and
  /// NCCL. A capture records whatever its stream is given by any thread, so captures use another priority.
  enum class Use { kWork, kCapture };

  /// Makes the side stream of a device. A CPU has none: its work runs at once.
  explicit SideStream(c10::Device device, Use use = Use::kWork);

  /// Begins a scope whose work waits for everything on the current stream so far. Existing tensors may be
  /// written in the scope, and are safe to free after join().
  Scope enter() const;
  /// Makes further work of the current stream wait for everything on this stream so far.
  void join() const { now().hold_current_stream(); }
  /// Returns an event that marks the end of all work on this stream so far.
  StreamEvent now() const { return stream_ ? StreamEvent(*stream_) : StreamEvent(); }

  /// Starts the copy destination = source between a device and the host, of equal sizes. The copy waits for
  /// everything on the current stream so far. Returns an event that marks the copy's end; both tensors must
  /// stay unchanged until then. If the host memory is not page-locked the caller waits.
  StreamEvent copy(const at::Tensor& destination, const at::Tensor& source) const;
  /// Starts a copy like copy(), but of values that already exist. It does not wait for the current stream.
  StreamEvent copy_at_once(const at::Tensor& destination, const at::Tensor& source) const;

 private:
  StreamEvent copy_here(const at::Tensor& destination, const at::Tensor& source) const;

  std::optional<c10::Stream> stream_;
};

}  // namespace deepspeed::device
