// Connects the groups of a world of several processes. Internal to this folder.
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
  std::string key;      // the same on all ranks, unique to the group
  bool is_own = false;  // from World::own_group()
  /// Group made by someone else, or null. The new group returns it as c10d_group(), but uses its own
  /// connections over the same backend (adopt.h).
  c10::intrusive_ptr<c10d::ProcessGroup> given = nullptr;
};

/// Makes a group. Only the group's ranks call it. Thread-safe.
using GroupFactory = std::function<ProcessGroup(const GroupRequest& request)>;

/// Returns the factory that makes the process groups of this job. They use `backend`, or for a request with a
/// `given` group, that group's backend. `store` is the world's. `guard` is null for a world of one rank.
GroupFactory group_factory(const Backend& backend, const Job& job,
                           const c10::intrusive_ptr<c10d::Store>& store,
                           const std::shared_ptr<DivergenceGuard>& guard);

}  // namespace deepspeed::comm
