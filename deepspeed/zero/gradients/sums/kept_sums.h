// The sums of gradients that a rank keeps from backward to backward: its own part of each group.
//
// They lie in memory of their own, on the device or on the host, and at stage 1 among the gradients that wait
// for the boundary's backward (waiting_sums.h) once there are any. Where several ranks hold each shard, they
// add up what they keep at the end of a window.
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
  /// owned, options: by group, the interval of its flat space that is kept, and dtype and device of the sums.
  /// on_host: keeps them in host memory instead; may be null.
  KeptSums(std::vector<Interval> owned, const std::vector<at::TensorOptions>& options,
           std::unique_ptr<HostSums> on_host, ReplicaSum replicas);

  /// Adds a piece of a reduction to the place in a group's part, or puts it there where the window has
  /// nothing yet; it is multiplied by averaging.after first. piece: on the device. Returns the moment from
  /// which the piece's memory may be written.
  device::StreamEvent take(size_t group, const Interval& place, const at::Tensor& piece,
                           const Averaging& averaging);
  /// Returns the memory of the place where a reduction may put a piece itself, multiplied by averaging.after,
  /// in place of take(); undefined where take() does more than to copy it.
  at::Tensor place_for(size_t group, const Interval& place, at::ScalarType dtype) const;
  /// Says that all pieces of a reduction were taken: those of later ones in this window are added to them.
  void end_reduction(const Averaging& averaging);
  /// Adds the sums up over the replicas. Collective; does nothing in a window without a reduction, and where
  /// it is done already.
  void sum_replicas();
  /// Forgets the sums, and lets their memory go until the next.
  void clear();

  /// Lays the sums at their places among those that wait, where they stay from here on.
  void move_into(const WaitingSums& waiting);
  /// What the window has reduced goes back to one rank's share of a sum over `num_ranks`, and waits with the
  /// gradients that come now, so that the next reduction leaves it as it is. move_into() comes first.
  void wait_again(WaitingSums& waiting, int num_ranks);

  bool is_on_host() const { return on_host_ != nullptr; }
  /// Returns the elements `part` of a group's sums. In host memory, it waits for these alone.
  at::Tensor part(size_t group, const Interval& part) const;
  /// Sums in host memory: returns a function, for another thread to call, that waits until a part has its
  /// values. This object does not wait for that part any more.
  std::function<void()> hand_over(size_t group, const Interval& part);
  int64_t bytes() const;

 private:
  void reopen_replicas();

  std::vector<Interval> owned_;        // [group]
  std::vector<at::Tensor> own_;        // [group], (owned numel)
  std::unique_ptr<HostSums> on_host_;  // where own_ is there and the pieces are not
  ReplicaSum replicas_;
  bool is_empty_ = true;           // the window has no reduction yet
  bool has_all_replicas_ = false;  // what own_ holds is the sum over them
  Averaging reduced_by_;           // what own_ holds
};

}  // namespace deepspeed::zero
