// Which rank sits where: pure arithmetic over the hosts and their slots.
#pragma once

#include <vector>

#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

struct RankPlace {
  int rank = 0;        ///< number in the whole world
  int local_rank = 0;  ///< number on its machine
  int slot = 0;        ///< the slot (GPU) of its machine
};

/// Counts ranks over the hosts in order, and on each host over its slots in order.
struct WorldLayout {
  ResourcePool nodes;

  int world_size() const;
  int num_nodes() const { return static_cast<int>(nodes.size()); }
  /// The number of ranks on a node. Throws UsageError for a node that does not exist.
  int local_size(int node) const;
  std::vector<RankPlace> ranks_of(int node) const;
};

}  // namespace deepspeed::launcher
