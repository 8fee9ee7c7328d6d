// Turns a process group that someone else made, such as Python's torch.distributed, into a world. Include
// this header separately: deepspeed.h does not include it or c10d's headers.
#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::comm {

/// Describes a c10d group whose ranks are to form a world.
struct DEEPSPEED_API GivenGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// Store through which the ranks meet; null: the one that the group was made with. Groups with different
  /// ranks, adopted through the same store, need different names.
  c10::intrusive_ptr<c10d::Store> store = nullptr;
  int local_rank = -1;  // -1: ranks of one machine count from 0 in rank order
  int local_size = -1;  // -1: the number on this rank's machine; give both or neither
  std::chrono::milliseconds timeout = InitOptions().timeout;
};

/// Holds the store through which a job's ranks have met. The program makes its own c10d group over this
/// store, and passes that group to adopt().
struct DEEPSPEED_API JobStore {
  c10::intrusive_ptr<c10d::Store> store;  // null if ranks are to meet through a file, which c10d opens
  int rank = 0;
  int world_size = 1;
  bool is_one_machine = false;
};

/// Opens the store of the job described by `options` and the environment, like init_distributed(). Waits
/// until all ranks have joined. Rank 0 serves the store as long as its `store` object exists. Throws
/// UsageError or CommError.
DEEPSPEED_API JobStore open_store(const InitOptions& options);

/// Makes a world of the ranks of the given group. Collective over them. The world makes new connections over
/// the same backend, with its own keys in the store. It never communicates over the given group, which a
/// script may use meanwhile on any thread. `world.group().c10d_group()` is the given group.
///
/// The caller keeps ownership: neither group nor store is kept alive, and the group is never aborted or shut
/// down. When its owner releases it, as Python's destroy_process_group() does, the world ends. Each call in
/// its groups and those of its engines then throws CommError, and waiting ranks are told.
///
/// Throws UsageError for a null group or store, an unknown backend, and a local rank or size out of range.
/// Throws CommError if the other ranks do not come.
DEEPSPEED_API World adopt(const GivenGroup& given);

/// Adopts a group like adopt(). world() and init_distributed() then return the result. If the present world
/// was adopted from the same group, returns that world. If it was adopted from another group, leaves that
/// world first, as destroy_process_group() does. Throws UsageError if init_distributed() has already made a
/// world.
DEEPSPEED_API World adopt_as_world(const GivenGroup& given);

}  // namespace deepspeed::comm
