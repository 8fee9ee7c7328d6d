// Holds a world behind the handle World (init.h). Internal to this folder.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/making/group_factory.h"
#include "deepspeed/comm/making/own_groups.h"
#include "deepspeed/comm/watch/divergence_guard.h"
#include "deepspeed/device/threads/exit_hook.h"

namespace deepspeed::comm {

/// Makes the groups of a world, and ends them with it. Functions correspond to those of World.
class WorldImpl {
 public:
  /// Makes a world. `guard` is null for a world without other processes. `given` is the group it was adopted
  /// from, or null.
  WorldImpl(Job job, GroupFactory make_group, std::shared_ptr<DivergenceGuard> guard = nullptr,
            const c10::intrusive_ptr<c10d::ProcessGroup>& given = nullptr);
  ~WorldImpl();

  const Job& job() const { return job_; }
  int ranks_per_node() const;
  const ProcessGroup& group() const { return group_; }
  ProcessGroup new_group(const std::vector<int>& global_ranks, const std::string& name);
  ProcessGroup own_group(const std::string& name, const std::string& purpose);
  ProcessGroup own_group(const std::string& name, const std::string& purpose,
                         const std::vector<int>& global_ranks);
  ProcessGroup adopt_group(const c10::intrusive_ptr<c10d::ProcessGroup>& given,
                           const std::vector<int>& global_ranks);
  bool is_adopted() const { return given_.has_value(); }
  /// Returns whether the c10d group that the world was adopted from no longer exists.
  bool is_over() const { return is_adopted() && given_->expired(); }
  /// Declares that the calling thread starts no more collectives.
  void end_calls_of_this_thread();
  /// Releases the world's group. Connections and store close with the group's last handle. If `together`, all
  /// ranks leave at this point, so waiting ranks are not told.
  void leave(bool together);
  bool was_left() const;
  /// Leaves the world, and ends groups that still have handles. Their next calls throw an error with this
  /// reason. If `completes`, groups first finish the work that they gave a device.
  void end(const std::string& reason, bool completes = true);

 private:
  /// Returns the factory of groups. Throws UsageError, naming the group `name`, if the world was left.
  GroupFactory group_factory(const std::string& name);
  ProcessGroup make_group(const std::vector<int>& global_ranks, const std::string& name,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& given);
  /// Makes a group. Its key is the request's key and the number of this group among those with that key.
  ProcessGroup make_own_group(const std::string& purpose, GroupRequest request);

  Job job_;
  GroupFactory make_group_;
  std::shared_ptr<DivergenceGuard> guard_;
  std::optional<c10::weak_intrusive_ptr<c10d::ProcessGroup>> given_;  // weak: its owner may destroy it
  std::unique_ptr<ExitHook> exit_hook_;
  ProcessGroup group_;
  mutable std::mutex mutex_;
  int64_t num_groups_ = 0;
  OwnGroups own_groups_;
};

/// Returns the world. Throws UsageError if it is null.
WorldImpl& checked_world(const std::shared_ptr<WorldImpl>& impl);

}  // namespace deepspeed::comm
