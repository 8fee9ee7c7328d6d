// Gradient sums in host memory. What a rank keeps of each reduction is copied from the device in the
// background.
#pragma once

#include <deque>
#include <functional>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {

/// Copies gradient pieces to host memory and adds them to sums there. Used by one thread.
class HostSums {
 public:
  HostSums(at::Device device, bool pin_memory) : pin_memory_(pin_memory), stream_(device) {}

  /// Allocates host memory for a group's sums: (numel), zeros.
  at::Tensor make(int64_t numel, at::ScalarType dtype) const;
  /// Starts to copy a piece: kept[place] = piece, or += piece if `adds`. kept: the group's sums in host
  /// memory. piece: on the device. Returns the event after which the piece's memory may be overwritten.
  device::StreamEvent take(size_t group, const at::Tensor& kept, const Interval& place,
                           const at::Tensor& piece, bool adds);
  /// Waits until all pieces of `part` taken so far are in host memory.
  void wait_for(size_t group, const Interval& part) { hand_over(group, part)(); }
  void wait_for_all();
  /// Returns a function that waits, on another thread, for the pending copies of `part`. This object then no
  /// longer waits for these copies.
  std::function<void()> hand_over(size_t group, const Interval& part);

 private:
  struct Arrival {
    size_t group;
    Interval place;
    device::StreamEvent copied;
    at::Tensor kept;     // at the place
    at::Tensor summand;  // in host memory; undefined: copied directly to `kept`
  };

  static void settle(const Arrival& arrival);

  bool pin_memory_;
  device::SideStream stream_;
  std::deque<Arrival> arrivals_;
};

}  // namespace deepspeed::zero
