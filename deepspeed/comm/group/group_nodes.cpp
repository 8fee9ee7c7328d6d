#include "deepspeed/comm/group/group_nodes.h"

#include <algorithm>
#include <ranges>

namespace deepspeed::comm {

std::vector<std::vector<int>> ranks_by_node(const std::vector<int>& ranks, int ranks_per_node) {
  std::vector<std::vector<int>> nodes;
  for (const int rank : ranks) {
    const auto known = std::ranges::find_if(nodes, [&](const std::vector<int>& node) {
      return node.front() / ranks_per_node == rank / ranks_per_node;
    });
    if (known == nodes.end()) {
      nodes.push_back({rank});
    } else {
      known->push_back(rank);
    }
  }
  return nodes;
}

std::vector<int> ranks_at_place(const std::vector<std::vector<int>>& nodes, size_t place) {
  std::vector<int> found;
  for (const std::vector<int>& node : nodes) found.push_back(node.at(place));
  return found;
}

std::optional<GroupNodes> nodes_of_group(const std::vector<int>& global_ranks, int rank, int ranks_per_node) {
  if (ranks_per_node < 2 || global_ranks.empty()) return std::nullopt;
  const auto nodes = ranks_by_node(global_ranks, ranks_per_node);
  const size_t places = nodes.front().size();
  const auto is_alike = [&](const std::vector<int>& node) { return node.size() == places; };
  if (places < 2 || nodes.size() < 2 || !std::ranges::all_of(nodes, is_alike)) return std::nullopt;
  if (!std::ranges::equal(nodes | std::views::join, global_ranks)) return std::nullopt;
  return GroupNodes{.num_nodes = int(nodes.size()),
                    .places = int(places),
                    .node = nodes[size_t(rank) / places],
                    .across = ranks_at_place(nodes, size_t(rank) % places)};
}

}  // namespace deepspeed::comm
