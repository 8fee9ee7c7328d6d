// The ranks that gather parameters from each other, and the memory used for it.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <vector>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/zero/access/gather_bucket.h"
#include "deepspeed/zero/access/gather_buffers.h"

namespace deepspeed::zero {

/// Says how a parameter is gathered: over which ranks, and in which form.
struct GatherRoute {
  bool is_near = false;  // over neighbouring ranks, from their secondary parts
  Fetch fetch = Fetch::kAllGather;
  auto operator<=>(const GatherRoute&) const = default;
};

/// Starts gathers over the ranks that a GatherRoute chooses. Not thread-safe.
class GatherRanks {
 public:
  /// nodes: subgroups of the shard group, for gathers in two steps; undefined: in one. near: ranks that
  /// together keep a second copy of gathered parameters; may be undefined.
  GatherRanks(comm::ProcessGroup shard_group, comm::NodeGroups nodes, comm::ProcessGroup near);

  /// Returns the ranks over which the parameters are partitioned.
  const comm::ProcessGroup& shard_group() const { return shard_group_; }
  /// Makes the stream that copies shards from other memory to `device`. Only the first call counts.
  void set_device(at::Device device);
  /// Starts a gather of `shards` along `route`, as GatherBucket does. Call set_device() first.
  std::shared_ptr<ShardGather> start(std::vector<std::shared_ptr<Shard>> shards, at::ScalarType dtype,
                                     at::Device device, const GatherRoute& route);
  /// Frees the memory that no gather uses.
  void drop_unused_buffers() { buffers_.drop_unused(); }

 private:
  const comm::ProcessGroup shard_group_;
  const comm::NodeGroups nodes_;
  const comm::ProcessGroup near_;
  GatherBuffers buffers_;
  std::optional<device::SideStream> copies_;
};

}  // namespace deepspeed::zero
