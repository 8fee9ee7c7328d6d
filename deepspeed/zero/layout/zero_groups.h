// The groups of ranks over which ZeRO shares out what it holds: a grid of shards and their replicas.
#pragma once

#include <string>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::zero {

/// Says which ranks meet in which of ZeRO's collectives. `shard` is for what is cut: partitions are gathered,
/// and gradients summed to their owners, over it. `replica` is for what holders of one shard add to each
/// other. `data` is for what all ranks do alike: agreements, and values that all of them get. `model` is for
/// what is of the model as a whole: the norm of all gradients, and whether all of them are finite.
struct ZeroGroups {
  ZeroGroups() = default;
  /// Makes the groups of a model that is cut over all data-parallel ranks, so that each shard is held once.
  explicit ZeroGroups(const comm::ProcessGroup& data_group, const comm::ProcessGroup& model_group = {});
  /// Makes the groups of a model that is cut over `shard_group` and held as often as `replica_group` has
  /// ranks. Throws UsageError where they do not fill `data_group`.
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

  /// Throws CommError where one of the groups has failed. Whoever has waited for the device asks.
  void check() const;

  /// Whether each shard is held by several ranks.
  bool has_replicas() const { return replica && replica.size() > 1; }
  /// Whether this rank is one of those that hold the first copy of everything: those that write it to files.
  bool is_first_replica() const { return !has_replicas() || replica.rank() == 0; }
};

/// How the data-parallel ranks share out what they hold.
struct RankSharing {
  int num_shards = 0;      // that hold everything once, in blocks that follow each other; 0: all ranks
  int secondary_size = 0;  // ranks of ZeroGroups::secondary; 0 and 1: no such group
  bool by_nodes = false;   // whether nodes play a part
};

/// Makes the groups of `data`, ranks of the world. num_shards and secondary_size divide their number.
/// Collective. name, purpose: as World::own_group() has them. Throws UsageError as node_layout().
ZeroGroups make_zero_groups(const comm::World& world, const comm::ProcessGroup& data,
                            const RankSharing& sharing, const std::string& name,
                            const std::string& purpose = "");

}  // namespace deepspeed::zero
