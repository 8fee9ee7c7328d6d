#include "deepspeed/comm/group/group_nodes.h"

#include <algorithm>
#include <cstddef>

namespace deepspeed::comm {

std::optional<GroupNodes> nodes_of_group(const std::vector<int>& global_ranks, int rank, int ranks_per_node) {
  if (ranks_per_node < 2 || global_ranks.empty()) return std::nullopt;
  const auto node_of = [&](size_t index) { return global_ranks[index] / ranks_per_node; };
  size_t places = 1;
  while (places < global_ranks.size() && node_of(places) == node_of(0)) ++places;
  if (places < 2 || places == global_ranks.size() || global_ranks.size() % places != 0) return std::nullopt;
  std::vector<int> nodes;
  for (size_t begin = 0; begin < global_ranks.size(); begin += places) {
    for (size_t index = begin; index < begin + places; ++index)
      if (node_of(index) != node_of(begin)) return std::nullopt;
    if (std::ranges::find(nodes, node_of(begin)) != nodes.end()) return std::nullopt;
    nodes.push_back(node_of(begin));
  }
  const auto place = size_t(rank) % places, first = size_t(rank) - place;
  GroupNodes found{.num_nodes = int(nodes.size()), .places = int(places), .node = {}, .across = {}};
  for (size_t index = 0; index < places; ++index) found.node.push_back(global_ranks[first + index]);
  for (size_t index = place; index < global_ranks.size(); index += places)
    found.across.push_back(global_ranks[index]);
  return found;
}

}  // namespace deepspeed::comm
