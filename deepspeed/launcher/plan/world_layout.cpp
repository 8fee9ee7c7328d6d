#include "deepspeed/launcher/plan/world_layout.h"

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {
namespace {

const HostSlots& node_at(const ResourcePool& nodes, int node) {
  if (node < 0 || node >= static_cast<int>(nodes.size())) {
    raise<UsageError>("node ", node, ", expected 0 to ", nodes.size(), " - 1");
  }
  return nodes[static_cast<size_t>(node)];
}

}  // namespace

int WorldLayout::world_size() const {
  size_t size = 0;
  for (const HostSlots& node : nodes) size += node.slots.size();
  return static_cast<int>(size);
}

int WorldLayout::local_size(int node) const { return static_cast<int>(node_at(nodes, node).slots.size()); }

std::vector<RankPlace> WorldLayout::ranks_of(int node) const {
  const std::vector<int>& slots = node_at(nodes, node).slots;
  int first_rank = 0;
  for (int before = 0; before < node; ++before) first_rank += local_size(before);
  std::vector<RankPlace> places;
  for (int local = 0; local < static_cast<int>(slots.size()); ++local) {
    places.push_back({first_rank + local, local, slots[static_cast<size_t>(local)]});
  }
  return places;
}

}  // namespace deepspeed::launcher
