// Finds out which ranks of a group caused a collective to fail. Internal to this folder.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Returns a text that names the ranks to blame for a failed operation. To be called on each rank where an
/// operation of the group fails. First records in the store that this rank has failed. Then calls `abort`,
/// which must close this rank's connections, so that the other ranks fail and report too. Ranks that do not
/// report within `grace` have died or hang; they are to blame. `peer` is set if the operation was a message:
/// the rank in the group that the message was for or from. Then only `peer` can be to blame, or if `peer`
/// failed in a message too, the rank that it waited for, and so on. Never throws. Takes about half a second
/// more than `grace` at most, even if the store does not answer.
std::string blame(const GroupDescription& group, const c10::intrusive_ptr<c10d::Store>& store,
                  const std::function<void()>& abort, std::chrono::milliseconds grace,
                  std::optional<int> peer = {});

}  // namespace deepspeed::comm
