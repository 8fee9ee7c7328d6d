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

/// Returns the rank at this place in each node. All nodes must have it.
DEEPSPEED_API std::vector<int> ranks_at_place(const std::vector<std::vector<int>>& nodes, size_t place);

/// Holds the ranks of a group that are ordered by node. Each of several nodes has equally many. Rank r of the
/// group has place r % places on node r / places.
struct GroupNodes {
  int num_nodes = 0;
  int places = 0;           // ranks per node
  std::vector<int> node;    // the global ranks on this rank's node
  std::vector<int> across;  // of each node, the rank at this rank's place
};

/// Returns the nodes of a group, split as by ranks_by_node(). `global_ranks` is in group order, and `rank` is
/// this rank's index in it. Returns nothing if the ranks are not ordered by node, if nodes differ in size, or
/// if there is only one node or one rank per node.
std::optional<GroupNodes> nodes_of_group(const std::vector<int>& global_ranks, int rank, int ranks_per_node);

}  // namespace deepspeed::comm
