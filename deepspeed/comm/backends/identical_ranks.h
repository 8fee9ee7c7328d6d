// A group that computes its collectives alone, as if all its ranks held the same tensors. With one rank that
// is the truth. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

class IdenticalRanksGroup : public ProcessGroup::Impl {
 public:
  /// `c10d_group` is null for a fake group.
  IdenticalRanksGroup(GroupDescription description, c10::intrusive_ptr<c10d::ProcessGroup> c10d_group)
      : Impl(std::move(description)), c10d_group_(std::move(c10d_group)) {}

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return c10d_group_; }

  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  Work start_broadcast(const at::Tensor& tensor, int root) override;
  Work start_all_gather(const at::Tensor& output, const at::Tensor& input) override;
  Work start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Work start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) override;
  Work start_all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  Work start_send(const at::Tensor& tensor, int destination, int tag) override;
  Work start_recv(const at::Tensor& tensor, int source, int tag) override;
  Work start_barrier() override;
  void monitored_barrier(std::chrono::milliseconds, bool) override {}

 private:
  void check_peer(const char* call) const;
  at::Tensor block_of_this_rank(const at::Tensor& whole) const;
  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group_;
};

}  // namespace deepspeed::comm
