#include "deepspeed/zero/layout/rank_blocks.h"

#include <algorithm>
#include <map>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {

std::vector<int> block_of(const std::vector<int>& ranks, int rank, int size) {
  const auto place = std::ranges::find(ranks, rank) - ranks.begin();
  const auto begin = ranks.begin() + place / size * size;
  return {begin, begin + size};
}

std::vector<int> counterparts_of(const std::vector<int>& ranks, int rank, int size) {
  const auto place = size_t(std::ranges::find(ranks, rank) - ranks.begin());
  std::vector<int> found;
  for (size_t one = place % size_t(size); one < ranks.size(); one += size_t(size))
    found.push_back(ranks[one]);
  return found;
}

NodeLayout node_layout(const std::vector<int>& ranks, int rank, int ranks_per_node) {
  std::map<int, std::vector<int>> nodes;
  for (const int one : ranks) nodes[one / ranks_per_node].push_back(one);
  NodeLayout layout{.node = nodes.at(rank / ranks_per_node), .across = {}};
  const auto place = size_t(std::ranges::find(layout.node, rank) - layout.node.begin());
  for (const auto& [node, members] : nodes) {
    if (members.size() != layout.node.size()) {
      raise<UsageError>("node ", node, " has ", members.size(), " of the ", ranks.size(),
                        " ranks that hold the model once, and the node of rank ", rank, " ",
                        layout.node.size(),
                        ", expected equally many for hierarchical collectives; set "
                        "zero_optimization.mics_hierarchical_params_gather and zero_quantized_gradients to "
                        "false");
    }
    layout.across.push_back(members[place]);
  }
  return layout;
}

}  // namespace deepspeed::zero
