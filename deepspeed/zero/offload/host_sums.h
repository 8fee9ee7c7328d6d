// Gradients that are kept in host memory: what a rank keeps of each reduction is copied out of the device
// beside its work.
#pragma once

#include <deque>
#include <functional>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/device/streams/stream_event.h"

namespace deepspeed::zero {

/// Keeps the sums; one thread uses it.
class HostSums {
 public:
  HostSums(at::Device device, bool pin_memory) : pin_memory_(pin_memory), stream_(device) {}

  /// Makes host memory for a group's sums: (numel), zeros.
  at::Tensor make(int64_t numel, at::ScalarType dtype) const;
  /// Starts kept[place] = piece, or += piece where `adds`. kept: the group's sums in host memory; piece: on
  /// the device. Returns the moment from which the piece's memory may be written.
  device::StreamEvent take(size_t group, const at::Tensor& kept, const Interval& place,
                           const at::Tensor& piece, bool adds);
  /// Waits until all pieces taken so far of the part have arrived.
  void wait_for(size_t group, const Interval& part) { hand_over(group, part)(); }
  void wait_for_all();
  /// Hands the pending copies of `part` over: returns a function that waits for them, for another thread to
  /// call.
  std::function<void()> hand_over(size_t group, const Interval& part);

 private:
  struct Arrival {
    size_t group;
    Interval place;
    device::StreamEvent copied;
    at::Tensor kept;     // at the place
    at::Tensor summand;  // in host memory; undefined: kept itself is copied to
  };

  static void settle(const Arrival& arrival);

  bool pin_memory_;
  device::SideStream stream_;
  std::deque<Arrival> arrivals_;
};

}  // namespace deepspeed::zero
