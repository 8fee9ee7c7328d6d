// Implements a barrier over the store that knows which ranks are missing. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Runs the monitored barriers of one group on this rank. A barrier is identified by the number of
/// collectives before it, and the number of barriers since the last collective. A rank that skipped a barrier
/// therefore matches the others again after the next collective. Not thread-safe.
class MonitoredBarriers {
 public:
  /// Waits for all ranks. Throws CommError naming the first or all ranks that did not come within `timeout`,
  /// or saying that this rank came after the others had given up.
  void wait(const GroupDescription& group, c10d::Store& store, uint64_t num_collectives,
            std::chrono::milliseconds timeout, bool name_all);

 private:
  uint64_t num_collectives_ = 0;
  uint64_t num_since_ = 0;
};

}  // namespace deepspeed::comm
