// This class stands behind the handle World. Internal to this folder.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "deepspeed/base/exit_hook.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job/job.h"
#include "deepspeed/comm/own_groups.h"
#include "deepspeed/comm/watch/divergence_guard.h"

namespace deepspeed::comm {

/// Describes a group that a world is to make.
struct GroupRequest {
  std::vector<int> global_ranks;
  std::string name;
  std::string key;      // alike on all ranks, and of no other group
  bool is_own = false;  // of World::own_group()
};

class World::Impl {
 public:
  /// Makes a group, on the ranks that are in it. Any thread may call.
  using GroupFactory = std::function<ProcessGroup(const GroupRequest& request)>;

  /// Makes a world. `guard` is null for a world without other processes.
  Impl(Job job, GroupFactory make_group, std::shared_ptr<DivergenceGuard> guard = nullptr);
  ~Impl();

  const Job& job() const { return job_; }
  const ProcessGroup& group() const { return group_; }
  ProcessGroup new_group(const std::vector<int>& global_ranks, const std::string& name);
  ProcessGroup own_group(const std::string& name, const std::string& purpose);
  /// Says that from here on the calling thread only ends calls that it has begun.
  void end_calls_of_this_thread();
  /// Gives up the world's group, and with it (once no other handle is left) the connections and the store.
  /// together: all ranks do so now, so that nobody can wait for this one.
  void leave(bool together);

 private:
  /// Returns the factory. Throws UsageError where the world was left.
  GroupFactory group_factory(const std::string& name);

  Job job_;
  GroupFactory make_group_;
  std::shared_ptr<DivergenceGuard> guard_;
  std::unique_ptr<ExitHook> exit_hook_;
  ProcessGroup group_;
  std::mutex mutex_;
  int64_t num_groups_ = 0;
  OwnGroups own_groups_;
};

}  // namespace deepspeed::comm
