// Gathers the shards of one or several parameters in one collective.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/node_gather.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/zero/access/gather_buffers.h"
#include "deepspeed/zero/shards/shard.h"

namespace deepspeed::zero {

/// Names the ways to bring the shards of all ranks together. The first two give the same bits. The others
/// send 8 bits an element, as integers or floats (kernels/block_quantization.h). All ranks get the same
/// rounded values.
enum class Fetch { kAllGather, kAllReduce, kQuantizedAllGather, kFloat8AllGather };

constexpr bool is_rounded(Fetch fetch) {
  return fetch == Fetch::kQuantizedAllGather || fetch == Fetch::kFloat8AllGather;
}

/// Represents a gather that was started, and returns its results.
class ShardGather {
 public:
  virtual ~ShardGather() = default;
  ShardGather(const ShardGather&) = delete;
  ShardGather& operator=(const ShardGather&) = delete;

  /// Returns the index-th parameter's values, (ranks * n): each rank's n elements, in order. Waits for them.
  /// The caller may keep them. With one rank they may share the shard's memory. Throws CommError and IoError.
  virtual at::Tensor take(size_t index) = 0;

 protected:
  ShardGather() = default;
};

class GatherBucket final : public ShardGather {
 public:
  /// Starts the gather of `shards`, whose parameters are on `device` and travel in `dtype`. The constructor
  /// waits only for disks, and for the step between nodes if there is one. The stream `copies` brings shards
  /// from other memory to the device. Results go into `buffers`, which must outlive this object. With one
  /// rank nothing is sent. nodes: subgroups of `group`, by node. If these are several nodes of several ranks,
  /// an all-gather goes first between nodes, then within them. Collective. Throws IoError.
  GatherBucket(const comm::ProcessGroup& group, std::vector<std::shared_ptr<Shard>> shards,
               at::ScalarType dtype, at::Device device, const device::SideStream& copies,
               GatherBuffers& buffers, Fetch fetch = Fetch::kAllGather, const comm::NodeGroups& nodes = {});
  ~GatherBucket() override;

  at::Tensor take(size_t index) override;

 private:
  bool is_on_device(const Shard& shard) const;
  /// Returns whether the shard can be sent or used as it is. It must be on the device, in the travelling
  /// dtype.
  bool fits(const Shard& shard) const;
  void start_alone();
  void start_all_gather(const comm::ProcessGroup& group, const comm::NodeGroups& nodes);
  void start_all_reduce(const comm::ProcessGroup& group);
  void start_quantized_all_gather(const comm::ProcessGroup& group, const comm::NodeGroups& nodes);
  /// Starts the all-gather of `sent_` into `received_`.
  void send(const comm::ProcessGroup& group, const comm::NodeGroups& nodes);
  at::Tensor dequantized(size_t index) const;
  void fill_sent();

  int num_ranks_;
  std::vector<std::shared_ptr<Shard>> shards_;
  std::vector<int64_t> begins_;  // the begin of each shard, in elements, or in bytes if quantized
  int64_t numel_ = 0;            // of all shards, in elements, or in bytes if quantized
  at::TensorOptions options_;
  device::SideStream copies_;
  GatherBuffers& buffers_;
  Fetch fetch_;
  bool is_copying_ = false;      // some shards come from host memory or a disk
  std::vector<at::Tensor> own_;  // with one rank: each shard's values; undefined: take() reads them
  at::Tensor sent_;              // of an all-gather: (all shards)
  at::Tensor received_;          // flat; by all-gather (ranks, all shards), by all-reduce (all shards, ranks)
  comm::Work work_;
};

}  // namespace deepspeed::zero
