#include "deepspeed/zero/layout/zero_groups.h"

#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {

ZeroGroups::ZeroGroups(const comm::ProcessGroup& data_group, const comm::ProcessGroup& model_group)
    : ZeroGroups(data_group, data_group, {}) {
  model = model_group;
}

ZeroGroups::ZeroGroups(comm::ProcessGroup data_group, comm::ProcessGroup shard_group,
                       comm::ProcessGroup replica_group)
    : data(std::move(data_group)), shard(std::move(shard_group)), replica(std::move(replica_group)) {
  const int num_replicas = replica ? replica.size() : 1;
  if (shard.size() * num_replicas != data.size()) {
    raise<UsageError>("a group of ", shard.size(), " ranks for shards and one of ", num_replicas,
                      " for replicas, expected a product of ", data.size(), ", the data-parallel ranks");
  }
  if (num_replicas > 1) {
    raise<NotSupportedError>("each shard would be held by ", num_replicas,
                             " ranks, expected 1: replicas of shards do not exist yet; set ",
                             "zero_optimization.mics_shard_size to -1");
  }
}

}  // namespace deepspeed::zero
