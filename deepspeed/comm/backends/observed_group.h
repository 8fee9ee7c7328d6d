// Starts all operations of all backends, whose groups derive from this class. Internal to this folder.
#pragma once

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/group/operation.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Reports each call to the observers (observer.h). A backend implements run().
class ObservedGroup : public GroupImpl {
 public:
  using GroupImpl::GroupImpl;
  Work start(const Operation& operation, const Caller& caller) final;

 protected:
  /// Starts the operation; start() does the reporting. `caller` holds the position and the values that ranks
  /// compare (ProcessGroup::at_position() and holding()).
  virtual Work run(const Operation& operation, const Caller& caller) = 0;
  /// Returns whether the operation runs in steps within and between nodes (node_levels.h).
  virtual bool goes_by_nodes(const Operation& operation) const {
    static_cast<void>(operation);
    return false;
  }
};

}  // namespace deepspeed::comm
