#include "deepspeed/engine/ranks/rank_layout.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "deepspeed/base/error.h"

namespace deepspeed {

RankLayout data_parallel_layout(int num_ranks, int rank) {
  RankLayout layout{std::vector<int>(num_ranks), {rank}};
  std::iota(layout.data.begin(), layout.data.end(), 0);
  return layout;
}

NodeLayout node_layout(const std::vector<int>& ranks, int rank, int ranks_per_node) {
  std::map<int, std::vector<int>> nodes;
  for (const int one : ranks) nodes[one / ranks_per_node].push_back(one);
  NodeLayout layout{.node = nodes.at(rank / ranks_per_node), .across = {}};
  const auto place = size_t(std::ranges::find(layout.node, rank) - layout.node.begin());
  for (const auto& [node, members] : nodes) {
    if (members.size() != layout.node.size()) {
      raise<UsageError>("node ", node, " has ", members.size(),
                        " of the data-parallel ranks, and the node of rank ", rank, " ", layout.node.size(),
                        ", expected equally many for hierarchical collectives");
    }
    layout.across.push_back(members[place]);
  }
  return layout;
}

std::vector<int> block_of(const std::vector<int>& ranks, int rank, int size) {
  const auto place = std::ranges::find(ranks, rank) - ranks.begin();
  const auto begin = ranks.begin() + place / size * size;
  return {begin, begin + size};
}

}  // namespace deepspeed
