// Describes the nodes that ranks run on. This is pure data for making groups.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::comm {

/// Splits ranks into nodes of `ranks_per_node` consecutive global ranks. Nodes, and the ranks of each, are in
/// the order of `ranks`.
DEEPSPEED_API std::vector<std::vector<int>> ranks_by_node(const std::vector<int>& ranks, int ranks_per_node);

/// Returns the rank with index `place` in each node. All nodes must have more ranks than that.
DEEPSPEED_API std::vector<int> ranks_at_place(const std::vector<std::vector<int>>& nodes, size_t place);

/// Describes a group whose ranks are ordered by node. All nodes have the same number of ranks, `places`. Rank
/// r of the group has index (place) r % places on node r / places.
struct GroupNodes {
  int num_nodes = 0;
  int places = 0;           // ranks per node
  std::vector<int> node;    // the global ranks on this rank's node
  std::vector<int> across;  // global ranks: one of each node, at this rank's place
};

/// Returns the nodes of a group, split as by ranks_by_node(). `global_ranks` is in group order, and `rank` is
/// this rank's index in it. Returns nothing if the ranks are not ordered by node, if nodes differ in size, or
/// if there is only one node or one rank per node.
std::optional<GroupNodes> nodes_of_group(const std::vector<int>& global_ranks, int rank, int ranks_per_node);

}  // namespace deepspeed::comm
