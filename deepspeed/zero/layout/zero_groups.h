// The groups of ranks over which ZeRO shares out what it holds: a grid of shards and their replicas.
#pragma once

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::zero {

/// Says which ranks meet in which of ZeRO's collectives. `shard` is for what is cut: partitions are gathered,
/// and gradients summed to their owners, over it. `replica` is for what holders of one shard add to each
/// other. `data` is for what all ranks do alike: agreements, and values that all of them get. `model` is for
/// what is of the model as a whole: the norm of all gradients, and whether all of them are finite.
struct ZeroGroups {
  /// Makes the groups of a model that is cut over all data-parallel ranks, so that each shard is held once.
  explicit ZeroGroups(const comm::ProcessGroup& data_group, const comm::ProcessGroup& model_group = {});
  /// Makes the groups of a model that is cut over `shard_group` and held as often as `replica_group` has
  /// ranks. Throws UsageError where they do not fill `data_group`, NotSupportedError for more than one
  /// replica.
  ZeroGroups(comm::ProcessGroup data_group, comm::ProcessGroup shard_group, comm::ProcessGroup replica_group);

  comm::ProcessGroup data;     // all ranks that train the same parameters on other data
  comm::ProcessGroup shard;    // ranks that together hold everything once
  comm::ProcessGroup replica;  // ranks that hold the same shard; without a group: this rank alone
  /// Ranks near each other that together keep what was gathered once more (config key
  /// zero_hpz_partition_size); without a group: none do.
  comm::ProcessGroup secondary;
  /// These are the ranks of `shard` on this node, and those at this rank's place on each node; without groups
  /// nodes play no part.
  comm::ProcessGroup node, across_nodes;
  comm::ProcessGroup model;  // ranks that hold one copy of the model together; without a group: this rank
};

}  // namespace deepspeed::zero
