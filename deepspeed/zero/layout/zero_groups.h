// The groups of ranks over which ZeRO divides its data: a grid of shards and their replicas.
#pragma once

#include <string>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::zero {

/// Says which ranks meet in which of ZeRO's collectives. Over `shard`, partitions are gathered and gradients
/// are summed to their owners. Over `replica`, the holders of one shard add up their sums. `data` serves
/// agreements and values that all ranks get. `model` serves values of the whole model: the norm of all
/// gradients, and whether all are finite.
struct ZeroGroups {
  ZeroGroups() = default;
  /// Makes the groups of a model cut over all data-parallel ranks. Each shard is held once.
  explicit ZeroGroups(const comm::ProcessGroup& data_group, const comm::ProcessGroup& model_group = {});
  /// Makes the groups of a model cut over `shard_group`. Each rank of `replica_group` holds a copy of the
  /// same shard. Throws UsageError if their sizes do not multiply to that of `data_group`.
  ZeroGroups(comm::ProcessGroup data_group, comm::ProcessGroup shard_group, comm::ProcessGroup replica_group);

  comm::ProcessGroup data;     // all ranks that train the same parameters on different data
  comm::ProcessGroup shard;    // ranks that together hold everything once
  comm::ProcessGroup replica;  // ranks that hold the same shard; undefined: only this rank
  /// Neighbouring ranks that together keep a second copy of gathered parameters (config key
  /// zero_hpz_partition_size). Undefined: there is no second copy.
  comm::ProcessGroup secondary;
  /// `node`: the ranks of `shard` on this node. `across_nodes`: from each node, the rank at this rank's
  /// position. Both are undefined if collectives go in one step.
  comm::ProcessGroup node, across_nodes;
  comm::ProcessGroup model;  // ranks that together hold one copy of the model; undefined: only this rank

  /// Throws CommError if one of the groups has failed. Call it after waiting for the device.
  void check() const;

  /// Returns whether each shard is held by several ranks.
  bool has_replicas() const { return replica && replica.size() > 1; }
  /// Returns whether this rank holds part of the first copy. That copy is written to files.
  bool is_first_replica() const { return !has_replicas() || replica.rank() == 0; }
};

/// Says how the data-parallel ranks share what they hold.
struct RankSharing {
  int num_shards = 0;      // number of consecutive ranks that together hold everything once; 0: all ranks
  int secondary_size = 0;  // number of ranks in ZeroGroups::secondary; 0 or 1: no such group
  bool by_nodes = false;   // collectives may go in two steps, within and between nodes
};

/// Makes ZeRO's groups over the data-parallel ranks `data`. num_shards and secondary_size divide the number
/// of these ranks. Collective. name, purpose: as in World::own_group(). Throws UsageError as node_layout()
/// does.
ZeroGroups make_zero_groups(const comm::World& world, const comm::ProcessGroup& data,
                            const RankSharing& sharing, const std::string& name,
                            const std::string& purpose = "");

}  // namespace deepspeed::zero
