// Makes the process a rank of a job: rendezvous, backend, and the world group.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/job/init_options.h"

namespace deepspeed::comm {

class WorldImpl;

/// Represents the ranks of a job, as seen from one of them. Destroying the last copy aborts pending work and
/// never waits.
class DEEPSPEED_API World {
 public:
  World() = default;
  explicit World(std::shared_ptr<WorldImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }

  int rank() const;
  int size() const;
  // These come from LOCAL_RANK and LOCAL_SIZE (or LOCAL_WORLD_SIZE), or another launcher's variables. If no
  // rank is given there, they come from the machine names that the ranks exchange.
  int local_rank() const;
  int local_size() const;
  /// Returns the number of consecutive ranks per node. It is local_size(), or DEEPSPEED_RANKS_PER_NODE, which
  /// lets one machine stand for several nodes. Throws UsageError if that does not divide the world.
  int ranks_per_node() const;
  const ProcessGroup& group() const;

  /// Makes a group of these global ranks. Collective: every rank of the world calls it in the same order.
  /// Ranks that are not in it get an empty handle.
  ProcessGroup new_group(const std::vector<int>& global_ranks, const std::string& name) const;
  /// Makes a group of all ranks for one user, such as an engine. Collective: the nth call with a name on one
  /// rank meets the nth with that name on the others. Threads may call at the same time with different names.
  /// A group's connections close after all ranks have released it. Throws UsageError if another thread is
  /// making a group of this name, or made one with the same `purpose` that still exists. Users with different
  /// purposes must notice on their own if ranks paired the wrong groups, for example by the sizes of their
  /// tensors.
  ProcessGroup own_group(const std::string& name, const std::string& purpose = "") const;
  /// Makes a group like the function above, but of these global ranks, ascending. Collective only over these
  /// ranks.
  ProcessGroup own_group(const std::string& name, const std::string& purpose,
                         const std::vector<int>& global_ranks) const;

  /// Makes a group over the ranks of an existing c10d group, e.g. one of Python's new_group(). It has the
  /// same backend, but connections of its own: it neither uses `group` nor keeps it alive. c10d_group()
  /// returns `group`. Collective only over these ranks; ranks that share several groups must adopt them in
  /// the same order. Throws UsageError if `global_ranks` are not the ranks of `group`, and for an unknown
  /// backend.
  ProcessGroup adopt_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                           const std::vector<int>& global_ranks) const;

  /// Waits for the other ranks in a barrier, then leaves. It is the last call of a successful program. The
  /// calling thread must not start collectives afterwards.
  void shutdown();
  /// Returns whether shutdown() or destroy_process_group() has left this world.
  bool was_left() const;

 private:
  std::shared_ptr<WorldImpl> impl_;
};

/// Joins the job described by the environment or `options`. Without RANK and WORLD_SIZE, the process becomes
/// a world of one that opens no socket. Later calls return the same world. Throws UsageError or CommError.
DEEPSPEED_API World init_distributed(const InitOptions& options = {});

/// Returns whether the process has a world from init_distributed() or adopt_as_world().
DEEPSPEED_API bool is_initialized();

/// Returns the world of init_distributed() or adopt_as_world(). Throws UsageError without one.
DEEPSPEED_API World world();

/// Leaves the world without a barrier. Work that groups gave a device is completed first, unless an exception
/// is active. Other pending work is aborted. Groups of engines that still exist end with an error in their
/// next call. A group that the world was adopted from (adopt.h) is not changed.
DEEPSPEED_API void destroy_process_group();

/// Leaves the world of a failed program, like destroy_process_group() but without waiting for a device.
DEEPSPEED_API void abort_process_group();

}  // namespace deepspeed::comm
