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

/// Is the world that a process belongs to. Destroying the last copy aborts what is under way and never waits.
class DEEPSPEED_API World {
 public:
  class Impl;
  World() = default;
  explicit World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }

  int rank() const;
  int size() const;
  // These come from LOCAL_RANK and LOCAL_SIZE (or LOCAL_WORLD_SIZE), or another launcher's variables; where
  // the rank is not told, from the machines that the ranks name to each other.
  int local_rank() const;
  int local_size() const;
  /// Returns how many consecutive ranks a node has: local_size(), or what DEEPSPEED_RANKS_PER_NODE says, by
  /// which one machine stands for several. Throws UsageError where that does not divide the world.
  int ranks_per_node() const;
  const ProcessGroup& group() const;

  /// Makes a group of these global ranks. Collective: every rank of the world calls it, in the same order,
  /// also those that are not in it (they get an empty handle).
  ProcessGroup new_group(const std::vector<int>& global_ranks, const std::string& name) const;
  /// Makes a group of all ranks for a user of its own, such as an engine, whatever other groups do.
  /// Collective: the nth call with a name on one rank meets the nth with that name on the others, so threads
  /// may call at the same time with different names. What one rank let go of closes once all have. Throws
  /// UsageError where another thread makes one of this name, or holds one that it made for the same
  /// `purpose`.
  ProcessGroup own_group(const std::string& name, const std::string& purpose = "") const;
  /// Makes one of these global ranks, ascending. Collective over these ranks alone.
  ProcessGroup own_group(const std::string& name, const std::string& purpose,
                         const std::vector<int>& global_ranks) const;

  /// Makes a group that stands for one which someone else made of these global ranks, e.g. Python's
  /// new_group(): it shows that group (c10d_group()) and has the same backend, but connections of its own.
  /// Collective over these ranks alone; a rank adopts the groups that it shares with others in one order.
  /// `group` is neither used nor kept. Throws UsageError for ranks that are not those of `group`, and for a
  /// backend that there is not.
  ProcessGroup adopt_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                           const std::vector<int>& global_ranks) const;

  /// Waits for the other ranks (a barrier), then leaves: the last call of a program that ends well. The
  /// calling thread starts no collective afterwards.
  void shutdown();
  /// Says whether shutdown() or destroy_process_group() has left it.
  bool was_left() const;

 private:
  std::shared_ptr<Impl> impl_;
};

/// Joins the job that the environment (or `options`) describes; a process without RANK and WORLD_SIZE becomes
/// a world of one that opens no socket. A second call returns the same world. Throws UsageError or CommError.
DEEPSPEED_API World init_distributed(const InitOptions& options = {});

/// Says whether the process has a world: of init_distributed() or adopt_as_world(), and not left since.
DEEPSPEED_API bool is_initialized();

/// Returns the world of init_distributed() or adopt_as_world(). Throws UsageError before it.
DEEPSPEED_API World world();

/// Leaves the world: no barrier. What a device was given by groups is done first, unless an exception is on
/// its way; what else is pending is aborted. The groups of engines that live on end, with an
/// error in their next call. A group that the world was adopted from (adopt.h) stays as it is.
DEEPSPEED_API void destroy_process_group();

/// Leaves the world of a program that has failed: as destroy_process_group(), but waits for no device.
DEEPSPEED_API void abort_process_group();

}  // namespace deepspeed::comm
