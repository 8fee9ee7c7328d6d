#include "deepspeed/zero/access/gather_ranks.h"

#include <utility>

namespace deepspeed::zero {

GatherRanks::GatherRanks(comm::ProcessGroup shard_group, comm::NodeGroups nodes, comm::ProcessGroup near)
    : shard_group_(std::move(shard_group)), nodes_(std::move(nodes)), near_(std::move(near)) {}

void GatherRanks::set_device(at::Device device) {
  if (!copies_) copies_.emplace(device);
}

std::shared_ptr<ShardGather> GatherRanks::start(std::vector<std::shared_ptr<Shard>> shards,
                                                at::ScalarType dtype, at::Device device,
                                                const GatherRoute& route) {
  return std::make_shared<GatherBucket>(route.is_near ? near_ : shard_group_, std::move(shards), dtype,
                                        device, *copies_, buffers_, route.fetch,
                                        route.is_near ? comm::NodeGroups() : nodes_);
}

}  // namespace deepspeed::zero
