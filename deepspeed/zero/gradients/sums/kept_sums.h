// Holds the sums of gradients that a rank keeps from backward to backward: its own part of each group.
//
// They have their own memory, on the device or on the host. At stage 1 they move into the sums that wait for
// the boundary's backward (waiting_sums.h), once there are any. If several ranks hold each shard, they add up
// what they keep at the end of a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/device/streams/stream_event.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/gradients/sums/waiting_sums.h"
#include "deepspeed/zero/layout/replica_sum.h"
#include "deepspeed/zero/offload/host_sums.h"

namespace deepspeed::zero {

class KeptSums {
 public:
  /// owned: by group, the kept interval of its flat space. options: by group, the sums' dtype and device.
  /// on_host: keeps the sums in host memory instead; may be null.
  KeptSums(std::vector<Interval> owned, const std::vector<at::TensorOptions>& options,
           std::unique_ptr<HostSums> on_host, ReplicaSum replicas);

  /// Multiplies a reduced piece by averaging.after and adds it to a group's sums. In a window's first
  /// reduction the piece is copied instead of added. place: relative to the kept interval. piece: on the
  /// device. Returns the event after which the piece's memory may be overwritten.
  device::StreamEvent take(size_t group, const Interval& place, const at::Tensor& piece,
                           const Averaging& averaging);
  /// Returns memory where a reduction may put a piece directly, multiplied by averaging.after. This replaces
  /// take(). Undefined if take() must do more than copy.
  at::Tensor place_for(size_t group, const Interval& place, at::ScalarType dtype) const;
  /// Ends a reduction made with `averaging`. Later ones in this window add to it.
  void end_reduction(const Averaging& averaging);
  /// Adds the sums up over the ranks that hold the same shard. Does nothing in a window without a reduction
  /// or if done already. Collective.
  void sum_replicas();
  /// Forgets the sums and lends their memory to other tensors until new sums are made.
  void clear();

  /// Moves the sums to their places in `waiting` (stage 1), where they stay.
  void move_into(const WaitingSums& waiting);
  /// Turns the reduced sums back into this rank's share of a sum over `num_ranks`. Reducing the shares again
  /// gives the same values. The shares wait with the new gradients in `waiting`. Call move_into() first.
  void wait_again(WaitingSums& waiting, int num_ranks);

  bool is_on_host() const { return on_host_ != nullptr; }
  /// Returns the elements `part` of a group's sums. If they are copied to host memory, waits only for these.
  at::Tensor part(size_t group, const Interval& part) const;
  /// Returns a function that waits, on another thread, until `part` has arrived in host memory. Call it only
  /// if is_on_host(). This object no longer waits for that part.
  std::function<void()> hand_over(size_t group, const Interval& part);
  int64_t bytes() const;

 private:
  void reopen_replicas();

  std::vector<Interval> owned_;        // [group]
  std::vector<at::Tensor> own_;        // [group], (owned numel)
  std::unique_ptr<HostSums> on_host_;  // if own_ is in host memory and the pieces are not
  ReplicaSum replicas_;
  bool is_empty_ = true;           // the window has no reduction yet
  bool has_all_replicas_ = false;  // own_ holds the sum over all replicas
  Averaging reduced_by_;           // how own_ was reduced
};

}  // namespace deepspeed::zero
