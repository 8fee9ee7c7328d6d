// Finds out which ranks of a group caused a collective to fail. Internal to this folder.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Reports a failure to the group's other ranks. Returns a text that names the ranks to blame. It reports
/// through the store, then calls `abort` to close this rank's connections, so that the others notice too.
/// Ranks that do not report within `grace` have died or hang. `peer` is the group's rank with which a message
/// was exchanged. Then `peer`, or the rank that it waited for, is to blame; without `peer` any rank may be.
/// Never throws. Takes about `grace` at most, even if the store does not answer.
std::string blame(const GroupDescription& group, const c10::intrusive_ptr<c10d::Store>& store,
                  const std::function<void()>& abort, std::chrono::milliseconds grace,
                  std::optional<int> peer = {});

}  // namespace deepspeed::comm
