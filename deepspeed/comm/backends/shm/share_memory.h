// Puts shared memory in front of a group's Gloo backend if all its ranks are on one machine. Internal to this
// folder.
#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Returns a backend over shared memory in front of `gloo`, or `gloo` itself. The ranks share `store`, and
/// all get the same result. If only a limit of the system prevents sharing, the log says which. Collective.
/// Throws what the store throws.
c10::intrusive_ptr<c10d::Backend> share_memory(const Job& job, const std::vector<int>& global_ranks,
                                               c10::intrusive_ptr<c10d::Backend> gloo,
                                               const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace deepspeed::comm
