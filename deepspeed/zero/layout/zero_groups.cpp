#include "deepspeed/zero/layout/zero_groups.h"

#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/layout/rank_blocks.h"

namespace deepspeed::zero {

ZeroGroups::ZeroGroups(const comm::ProcessGroup& data_group, const comm::ProcessGroup& model_group)
    : ZeroGroups(data_group, data_group, {}) {
  model = model_group;
}

ZeroGroups::ZeroGroups(comm::ProcessGroup data_group, comm::ProcessGroup shard_group,
                       comm::ProcessGroup replica_group)
    : data(std::move(data_group)), shard(std::move(shard_group)), replica(std::move(replica_group)) {
  const int num_replicas = replica ? replica.size() : 1;
  if (shard.size() * num_replicas == data.size()) return;
  raise<UsageError>("a group of ", shard.size(), " ranks for shards and one of ", num_replicas,
                    " for replicas, expected a product of ", data.size(), ", the data-parallel ranks");
}

void ZeroGroups::check() const {
  for (const auto* group : {&data, &shard, &replica, &secondary, &node, &across_nodes, &model})
    if (*group) group->check();
}

ZeroGroups make_zero_groups(const comm::World& world, const comm::ProcessGroup& data,
                            const RankSharing& sharing, const std::string& name, const std::string& purpose) {
  const std::vector<int>& ranks = data.global_ranks();
  const auto make = [&](const char* kind, const std::vector<int>& members) {
    return world.own_group(name + kind, purpose, members);
  };
  ZeroGroups groups(data);
  if (sharing.num_shards > 0 && sharing.num_shards < data.size()) {
    groups = ZeroGroups(data, make(".shard", block_of(ranks, world.rank(), sharing.num_shards)),
                        make(".replica", counterparts_of(ranks, world.rank(), sharing.num_shards)));
  }
  if (sharing.by_nodes) {
    const int per_node = world.ranks_per_node();
    // Blocks may lie on nodes in different ways. An error in one block must be an error on all ranks.
    for (size_t first = 0; first < ranks.size(); first += size_t(groups.shard.size()))
      node_layout(block_of(ranks, ranks[first], groups.shard.size()), ranks[first], per_node);
    const NodeLayout nodes = node_layout(groups.shard.global_ranks(), world.rank(), per_node);
    groups.node = make(".node", nodes.node);
    groups.across_nodes = make(".across_nodes", nodes.across);
  }
  if (sharing.secondary_size > 1)
    groups.secondary = make(".secondary", block_of(ranks, world.rank(), sharing.secondary_size));
  return groups;
}

}  // namespace deepspeed::zero
