#include "deepspeed/launcher/plan/environment.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"

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

Environment current_environment() {
  Environment variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr)
      variables.emplace(std::string(static_cast<const char*>(*entry), equals), equals + 1);
  }
  return variables;
}

std::string value_of(const Environment& environment, const std::string& name, const std::string& otherwise) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

bool runs_on_cpu(const Environment& environment) { return value_of(environment, "DS_ACCELERATOR") == "cpu"; }

Environment rank_environment(const Environment& base, const NodeEnvironment& node, const RankPlace& place) {
  Environment variables = base;
  const std::string local_size = std::to_string(node.layout.local_size(node.node));
  variables["MASTER_ADDR"] = node.master_addr;
  variables["MASTER_PORT"] = std::to_string(node.master_port);
  variables["WORLD_SIZE"] = std::to_string(node.layout.world_size());
  variables["CROSS_RANK"] = std::to_string(node.node);
  variables["CROSS_SIZE"] = std::to_string(node.layout.num_nodes());
  variables["LOCAL_SIZE"] = local_size;
  variables["LOCAL_WORLD_SIZE"] = local_size;
  variables["RANK"] = std::to_string(place.rank);
  variables["LOCAL_RANK"] = std::to_string(place.local_rank);
  if (!node.devices.empty()) variables["CUDA_VISIBLE_DEVICES"] = join(node.devices, ",");
  variables.emplace("OMP_NUM_THREADS", std::to_string(node.threads_per_rank));
  return variables;
}

int threads_per_rank(int num_cores, int num_local_ranks) { return std::max(1, num_cores / num_local_ranks); }

}  // namespace deepspeed::launcher
