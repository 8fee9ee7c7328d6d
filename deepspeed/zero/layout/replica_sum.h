// Sums gradients over the ranks that hold the same shard, if several do (config key mics_shard_size).
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

class ReplicaSum {
 public:
  /// Prepares sums over `replica`. If that is undefined or has one rank, there is nothing to sum. dtype: the
  /// dtype in which sums are sent; absent: their own. With fp32, fp64 sums are still sent in fp64. device:
  /// the device from which sums are sent.
  ReplicaSum(comm::ProcessGroup replica, std::optional<at::ScalarType> dtype, at::Device device);

  bool is_needed() const { return replica_ && replica_.size() > 1; }
  /// Replaces `sums`, (n) in host memory or on the device, by their sum over ranks. Collective.
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
