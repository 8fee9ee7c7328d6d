// Which ranks of a world this one trains what with: pure data, of which the groups of an engine are made.
#pragma once

#include <vector>

namespace deepspeed {

/// Global ranks, ascending, with this one among them.
struct RankLayout {
  std::vector<int> data;   // ranks that hold the same parameters and train them on other data
  std::vector<int> model;  // ranks that hold one copy of the model together
  int num_stages = 1;      // of how many parts, one behind another, that copy is made
};

/// Returns the layout of a rank where all `num_ranks` hold the whole model.
RankLayout data_parallel_layout(int num_ranks, int rank);

/// Some ranks as nodes hold them.
struct NodeLayout {
  std::vector<int> node;    // those on this rank's node
  std::vector<int> across;  // of each node the one at this rank's place
};

/// Cuts `ranks` into nodes, of `ranks_per_node` consecutive global ranks each. Throws UsageError where nodes
/// have a different number of them.
NodeLayout node_layout(const std::vector<int>& ranks, int rank, int ranks_per_node);

/// Returns those of `ranks` that are in one block with `rank`, where blocks of `size` follow each other. The
/// size divides the number of ranks.
std::vector<int> block_of(const std::vector<int>& ranks, int rank, int size);

}  // namespace deepspeed
