// Divides ranks into blocks, by shards or by nodes: pure data, from which groups are made.
#pragma once

#include <vector>

namespace deepspeed::zero {

/// Returns the block of `ranks` that contains `rank`. Blocks of `size` ranks follow each other; `size`
/// divides the number of ranks.
std::vector<int> block_of(const std::vector<int>& ranks, int rank, int size);

/// Returns the rank at `rank`'s position from each block that block_of() makes.
std::vector<int> counterparts_of(const std::vector<int>& ranks, int rank, int size);

/// Lists the ranks of a rank's own node, and its counterparts on other nodes.
struct NodeLayout {
  std::vector<int> node;    // the ranks on this rank's node
  std::vector<int> across;  // from each node, the rank at this rank's position
};

/// Divides `ranks` into nodes of `ranks_per_node` consecutive global ranks. Throws UsageError if the nodes
/// hold different numbers of `ranks`.
NodeLayout node_layout(const std::vector<int>& ranks, int rank, int ranks_per_node);

}  // namespace deepspeed::zero
