// The sum of gradients over the ranks that hold one shard, where several do (config key mics_shard_size).
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

class ReplicaSum {
 public:
  /// dtype: in which sums travel; absent: their own. device: from which ranks send. Without a group, or of
  /// one rank, there is nothing to sum.
  ReplicaSum(comm::ProcessGroup replica, std::optional<at::ScalarType> dtype, at::Device device);

  bool is_needed() const { return replica_ && replica_.size() > 1; }
  /// Adds up `sums`, (n) in host memory or on the device, over the ranks. Collective.
  void add_up(const at::Tensor& sums) const;
  /// Makes `sums`, which were added up already, ready for more gradients and another sum: the first replica
  /// keeps what is there.
  void reopen(const at::Tensor& sums) const;

 private:
  comm::ProcessGroup replica_;
  std::optional<at::ScalarType> dtype_;
  at::Device device_;
};

}  // namespace deepspeed::zero
