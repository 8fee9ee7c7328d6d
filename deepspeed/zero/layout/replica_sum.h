// Sums gradients over the ranks that hold the same shard, if several do (config key mics_shard_size).
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

class ReplicaSum {
 public:
  /// dtype: in which sums travel; absent: their own. device: from which ranks send. Without a group, or with
  /// one rank, there is nothing to sum.
  ReplicaSum(comm::ProcessGroup replica, std::optional<at::ScalarType> dtype, at::Device device);

  bool is_needed() const { return replica_ && replica_.size() > 1; }
  /// Adds `sums` over the ranks: (n) in host memory or on the device. Collective.
  void add_up(const at::Tensor& sums) const;
  /// Prepares `sums`, already added over the replicas, for more gradients and another sum. Only the first
  /// replica keeps its values; the others are set to zero.
  void reopen(const at::Tensor& sums) const;

 private:
  comm::ProcessGroup replica_;
  std::optional<at::ScalarType> dtype_;
  at::Device device_;
};

}  // namespace deepspeed::zero
