// What stands behind the handle World. Internal to this folder.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "deepspeed/base/exit_hook.h"
#include "deepspeed/comm/divergence_guard.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job.h"

namespace deepspeed::comm {

class World::Impl {
 public:
  /// Makes the group number `index` of the world, on the ranks that are in it.
  using GroupFactory = std::function<ProcessGroup(const std::vector<int>& global_ranks,
                                                  const std::string& name, int64_t index)>;

  /// `guard` is null for a world without other processes.
  Impl(Job job, GroupFactory make_group, std::shared_ptr<DivergenceGuard> guard = nullptr);
  ~Impl();

  const Job& job() const { return job_; }
  const ProcessGroup& group() const { return group_; }
  ProcessGroup new_group(const std::vector<int>& global_ranks, const std::string& name);
  /// Gives up the world's group, and with it (once no other handle is left) the connections and the store.
  /// together: all ranks do so now, so that nobody can wait for this one.
  void leave(bool together);

 private:
  Job job_;
  GroupFactory make_group_;
  std::shared_ptr<DivergenceGuard> guard_;
  std::unique_ptr<ExitHook> exit_hook_;
  ProcessGroup group_;
  std::mutex mutex_;
  int64_t num_groups_ = 0;
};

}  // namespace deepspeed::comm
