// The groups of a world of several processes are connected here. Internal to this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/watch/divergence_guard.h"

namespace deepspeed::comm {

/// Describes a group that a world is to make.
struct GroupRequest {
  std::vector<int> global_ranks;
  std::string name;
  std::string key;      // alike on all ranks, and of no other group
  bool is_own = false;  // of World::own_group()
  /// Is a group that someone else made, which the new one shows in place of its own connections, and whose
  /// backend it takes (adopt.h); null: none.
  c10::intrusive_ptr<c10d::ProcessGroup> given = nullptr;
};

/// Makes a group, on the ranks that are in it. Any thread may call.
using GroupFactory = std::function<ProcessGroup(const GroupRequest& request)>;

/// Returns what makes the groups of this job's world: over `backend`, or that of the given group where the
/// request names one. `store` is the world's, `guard` null for a world of one rank.
GroupFactory group_factory(const Backend& backend, const Job& job,
                           const c10::intrusive_ptr<c10d::Store>& store,
                           const std::shared_ptr<DivergenceGuard>& guard);

}  // namespace deepspeed::comm
