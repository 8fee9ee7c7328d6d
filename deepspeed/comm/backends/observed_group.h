// The groups of all backends derive from this class: it is the one place where an operation starts. Internal
// to this folder.
#pragma once

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/group/operation.h"

namespace deepspeed::comm {

/// A backend writes run(); who listens (observer.h) is told of each call here.
class ObservedGroup : public ProcessGroup::Impl {
 public:
  using Impl::Impl;
  Work start(const Operation& operation, const Caller& caller) final;

 protected:
  /// Starts the operation. `caller` tells where the call comes from.
  virtual Work run(const Operation& operation, const Caller& caller) = 0;
  /// Says whether the operation goes within nodes and once between them.
  virtual bool goes_by_nodes(const Operation& operation) const {
    static_cast<void>(operation);
    return false;
  }
};

}  // namespace deepspeed::comm
