// A barrier over the store knows who is missing. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Runs the monitored barriers of one group on this rank. A barrier is named by how many collectives the
/// group had before it and by its place among the barriers since then: a rank that skipped one meets the
/// others again after the next collective. Not for several threads at a time.
class MonitoredBarriers {
 public:
  /// Waits for all ranks. Throws CommError naming the ranks that did not come within `timeout`, all of them
  /// or the first, or saying that this rank came after the others had given up.
  void wait(const GroupDescription& group, c10d::Store& store, uint64_t num_collectives,
            std::chrono::milliseconds timeout, bool name_all);

 private:
  uint64_t num_collectives_ = 0;
  uint64_t num_since_ = 0;
};

}  // namespace deepspeed::comm
