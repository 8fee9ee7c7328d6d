// Puts shared memory before the Gloo backend of a group, where all its ranks are on one machine. Internal to
// this folder.
#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Returns the backend over shared memory of these ranks of the job, which share `store`, with `gloo` behind
/// it, or `gloo` where they cannot share: all ranks get the same. Where they could but for a limit of the
/// system, a line of the log says what. Collective. Throws what the store throws.
c10::intrusive_ptr<c10d::Backend> share_memory(const Job& job, const std::vector<int>& global_ranks,
                                               c10::intrusive_ptr<c10d::Backend> gloo,
                                               const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace deepspeed::comm
