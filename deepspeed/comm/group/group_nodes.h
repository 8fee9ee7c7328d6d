// The nodes on which ranks are: pure data, of which groups are made.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::comm {

/// Cuts ranks into nodes, of `ranks_per_node` consecutive global ranks each. Nodes come in the order in which
/// `ranks` goes to them, and so do the ranks of each.
DEEPSPEED_API std::vector<std::vector<int>> ranks_by_node(const std::vector<int>& ranks, int ranks_per_node);

/// Returns of each node the rank at this place, which all of them have.
DEEPSPEED_API std::vector<int> ranks_at_place(const std::vector<std::vector<int>>& nodes, size_t place);

/// Holds the ranks of a group that lie node by node, equally many on each of several nodes: rank r of the
/// group has place r % places on node r / places.
struct GroupNodes {
  int num_nodes = 0;
  int places = 0;           // ranks on a node
  std::vector<int> node;    // the global ranks on this rank's node
  std::vector<int> across;  // of each node the one at this rank's place
};

/// Returns the nodes of a group. global_ranks: in group order; rank: this one's index among them. They
/// are cut as by ranks_by_node(). Returns nothing where the ranks do not lie node by node, where
/// nodes have different numbers of them, and where there is one node or one rank a node.
std::optional<GroupNodes> nodes_of_group(const std::vector<int>& global_ranks, int rank, int ranks_per_node);

}  // namespace deepspeed::comm
