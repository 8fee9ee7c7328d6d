#include "deepspeed/launcher/plan/environment.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {

Environment current_environment() {
  Environment variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr)
      variables.emplace(std::string(static_cast<const char*>(*entry), equals), equals + 1);
  }
  return variables;
}

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
