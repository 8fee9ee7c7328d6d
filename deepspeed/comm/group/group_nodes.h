// The nodes on which a group's ranks are: pure data. Internal to this folder.
#pragma once

#include <optional>
#include <vector>

namespace deepspeed::comm {

/// Holds the ranks of a group that lie node by node, equally many on each of several nodes: rank r of the
/// group has place r % places on node r / places.
struct GroupNodes {
  int num_nodes = 0;
  int places = 0;           // ranks on a node
  std::vector<int> node;    // the global ranks on this rank's node
  std::vector<int> across;  // of each node the one at this rank's place
};

/// Returns the nodes of a group. global_ranks: in group order; rank: this one's index among them. A node has
/// `ranks_per_node` consecutive global ranks. Returns nothing where the ranks do not lie node by node, where
/// nodes have different numbers of them, and where there is one node or one rank a node.
std::optional<GroupNodes> nodes_of_group(const std::vector<int>& global_ranks, int rank, int ranks_per_node);

}  // namespace deepspeed::comm
