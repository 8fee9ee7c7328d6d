#include "deepspeed/zero/layout/rank_blocks.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/group_nodes.h"

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
  const auto nodes = comm::ranks_by_node(ranks, ranks_per_node);
  const auto node_of = [&](const std::vector<int>& members) { return members.front() / ranks_per_node; };
  const auto& own = *std::ranges::find(nodes, rank / ranks_per_node, node_of);
  for (const auto& members : nodes) {
    if (members.size() == own.size()) continue;
    raise<UsageError>("node ", node_of(members), " has ", members.size(), " of the ", ranks.size(),
                      " ranks that hold the model once, and the node of rank ", rank, " ", own.size(),
                      ", expected equally many for hierarchical collectives; set "
                      "zero_optimization.mics_hierarchical_params_gather and zero_quantized_gradients to "
                      "false");
  }
  const auto place = std::ranges::find(own, rank) - own.begin();
  return {.node = own, .across = comm::ranks_at_place(nodes, size_t(place))};
}

}  // namespace deepspeed::zero
