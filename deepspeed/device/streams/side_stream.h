// A second queue of work for a device, beside the current one: for copies that run while it computes.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::device {

class SideStream {
 public:
  /// While it lives, this thread's work for the device goes to the side stream. A default one changes
  /// nothing.
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

  /// For which work it is. A process has few streams of a kind, which its side streams and NCCL share: a
  /// capture takes whatever its stream is given, from any thread, so those have a kind of their own.
  enum class Use { kWork, kCapture };

  /// Makes the side stream of a device. A CPU has none: its work is done at once.
  explicit SideStream(c10::Device device, Use use = Use::kWork);

  /// Begins a scope whose work waits for all that the current stream was given so far. Tensors that were made
  /// before may be written in the scope, and are safe to free after join().
  Scope enter() const;
  /// Makes further work of the current stream wait for all that this stream was given so far.
  void join() const { now().hold_current_stream(); }
  /// Returns the moment at which all work that this stream was given so far is done.
  StreamEvent now() const { return stream_ ? StreamEvent(*stream_) : StreamEvent(); }

  /// Starts the copy destination = source, of one size, between a device and the host, after all that the
  /// current stream was given so far. Returns the moment at which it is done; both tensors must stay as they
  /// are until then. Host memory that is not page-locked makes the caller wait.
  StreamEvent copy(const at::Tensor& destination, const at::Tensor& source) const;
  /// Starts a copy as copy() does, of values that are there already: it does not wait for the current stream.
  StreamEvent copy_at_once(const at::Tensor& destination, const at::Tensor& source) const;

 private:
  StreamEvent copy_here(const at::Tensor& destination, const at::Tensor& source) const;

  std::optional<c10::Stream> stream_;
};

}  // namespace deepspeed::device
