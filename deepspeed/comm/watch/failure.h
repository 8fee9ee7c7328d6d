// Finds out which ranks of a group are to blame when a collective failed. Internal to this folder.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Tells the group's other ranks (through its store) that this rank saw a failure, closes this rank's
/// connections by `abort`, so that the others see it too, and returns a text about those that did not report
/// within `grace`: they died or hang. `peer`: the rank in the group with which a message was exchanged: it is
/// to blame, or whom it waited for itself; nothing: any may be. Never throws and takes at most about `grace`,
/// also where the store itself does not answer.
std::string blame(const GroupDescription& group, const c10::intrusive_ptr<c10d::Store>& store,
                  const std::function<void()>& abort, std::chrono::milliseconds grace,
                  std::optional<int> peer = {});

}  // namespace deepspeed::comm
