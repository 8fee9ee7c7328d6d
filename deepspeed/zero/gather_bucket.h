// Shards of one or several parameters that are gathered by one collective.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/process_group.h"

namespace deepspeed::zero {

class GatherBucket {
 public:
  /// shards: (n) each, contiguous, of one dtype and device. Collective; waits for nothing. Of one rank there
  /// is nothing to gather.
  GatherBucket(const comm::ProcessGroup& group, std::vector<at::Tensor> shards);

  /// The index-th shard of all ranks: (ranks * n), the caller's own; with one rank the shard itself. Waits.
  /// Throws CommError.
  at::Tensor take(size_t index);

 private:
  int num_ranks_;
  std::vector<at::Tensor> shards_;
  at::Tensor sent_;
  at::Tensor received_;  // (ranks * all shards)
  comm::Work work_;
};

}  // namespace deepspeed::zero
