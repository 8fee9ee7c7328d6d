// A process group that someone else made, such as Python's torch.distributed, becomes a world here. Include
// this header by itself: deepspeed.h does not reach it, nor c10d's headers.
#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::comm {

/// Describes a c10d group whose ranks are to be a world.
struct DEEPSPEED_API GivenGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// Is the store over which all ranks of the group meet; null: the one that the group was made with. Groups
  /// of other ranks that are adopted over the same store have other names.
  c10::intrusive_ptr<c10d::Store> store = nullptr;
  int local_rank = -1;  // -1: ranks of one machine count from 0 in the order of their ranks
  int local_size = -1;  // -1: as many as share this rank's machine; both are told, or neither
  std::chrono::milliseconds timeout = InitOptions().timeout;
};

/// Is the store over which the ranks of a job have met, for a group that someone else makes of it and adopt()
/// takes.
struct DEEPSPEED_API JobStore {
  c10::intrusive_ptr<c10d::Store> store;  // null where the ranks are to meet over a file: c10d opens it
  int rank = 0;
  int world_size = 1;
  bool is_one_machine = false;
};

/// Opens the store of the job that `options` and the environment describe, as init_distributed() does, and
/// waits until all ranks are there. Rank 0 serves it as long as its store lives. Throws UsageError or
/// CommError.
DEEPSPEED_API JobStore open_store(const InitOptions& options);

/// Makes a world of the ranks of the given group. Collective over them. The world connects the ranks anew,
/// over the same backend and through a part of the store with keys of its own: nothing that it does travels
/// over the given group, which a script may use meanwhile on any thread. `world.group().c10d_group()` is the
/// given group.
///
/// The caller keeps both: neither group nor store is held, and the group is never aborted or shut down. Once
/// its owner lets go of it, as Python's destroy_process_group() does, the world is over: each call in its
/// groups and those of its engines throws CommError, and ranks that wait for this one are told.
///
/// Throws UsageError for a group or store that is null, a backend that there is not, and a local rank or size
/// out of range; CommError where the other ranks do not come.
DEEPSPEED_API World adopt(const GivenGroup& given);

/// Makes the world of adopt() the one that world() and init_distributed() return. For the group that it was
/// adopted from, the present world is returned; one that was adopted from another group is left first, as by
/// destroy_process_group(). Throws UsageError where init_distributed() has made a world already.
DEEPSPEED_API World adopt_as_world(const GivenGroup& given);

}  // namespace deepspeed::comm
