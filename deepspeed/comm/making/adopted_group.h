// Runs a group over this library's own connections while presenting the given c10d group. Internal to this
// folder.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

class AdoptedGroup final : public GroupImpl {
 public:
  /// Runs operations on `own`, but presents `given` as its c10d group. Both have the same ranks. `given` is
  /// neither used nor kept alive.
  AdoptedGroup(std::shared_ptr<GroupImpl> own, const c10::intrusive_ptr<c10d::ProcessGroup>& given)
      : GroupImpl(own->description()), own_(std::move(own)), given_(given) {}

  /// Returns the given group; null after its owner has released it.
  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const override { return given_.lock(); }
  Work start(const Operation& operation, const Caller& caller) override {
    return own_->start(operation, caller);
  }
  void check() override { own_->check(); }
  void complete() override { own_->complete(); }
  void give_up(const std::string& reason) override { own_->give_up(reason); }

 private:
  std::shared_ptr<GroupImpl> own_;
  c10::weak_intrusive_ptr<c10d::ProcessGroup> given_;
};

}  // namespace deepspeed::comm
