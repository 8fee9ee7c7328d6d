// How ranks are cut into blocks, of a model's shards or of nodes: pure data, of which groups are made.
#pragma once

#include <vector>

namespace deepspeed::zero {

/// Returns those of `ranks` that are in one block with `rank`, where blocks of `size` follow each other. The
/// size divides the number of ranks.
std::vector<int> block_of(const std::vector<int>& ranks, int rank, int size);

/// Returns of each such block the one at the place that `rank` has in its own.
std::vector<int> counterparts_of(const std::vector<int>& ranks, int rank, int size);

/// Some ranks as nodes hold them.
struct NodeLayout {
  std::vector<int> node;    // those on this rank's node
  std::vector<int> across;  // of each node the one at this rank's place
};

/// Cuts `ranks` into nodes, of `ranks_per_node` consecutive global ranks each. Throws UsageError where nodes
/// have a different number of them.
NodeLayout node_layout(const std::vector<int>& ranks, int rank, int ranks_per_node);

}  // namespace deepspeed::zero
