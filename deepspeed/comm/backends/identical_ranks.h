// Computes collectives without communication, as if all ranks held the same tensors. With one rank that is
// exact. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/backends/observed_group.h"

namespace deepspeed::comm {

class IdenticalRanksGroup : public ObservedGroup {
 public:
  /// Makes the group. `c10d_group` is null for a fake group.
  IdenticalRanksGroup(GroupDescription description, c10::intrusive_ptr<c10d::ProcessGroup> c10d_group)
      : ObservedGroup(std::move(description)), c10d_group_(std::move(c10d_group)) {}

  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return c10d_group_; }

 private:
  Work run(const Operation& operation, const Caller& caller) override;
  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group_;
};

}  // namespace deepspeed::comm
