#include "deepspeed/engine/ranks/parallel_groups.h"

namespace deepspeed {

ParallelGroups make_parallel_groups(const comm::World& world, const RankLayout& layout,
                                    const std::string& name, const std::string& purpose,
                                    int64_t secondary_size, bool by_nodes) {
  ParallelGroups groups;
  groups.all = world.own_group(name, purpose);
  const bool is_whole = int(layout.data.size()) == world.size();
  groups.data = is_whole ? groups.all : world.own_group(name + ".data", purpose, layout.data);
  if (layout.model.size() > 1) groups.model = world.own_group(name + ".model", purpose, layout.model);
  groups.num_stages = layout.num_stages;
  if (by_nodes) {
    const NodeLayout nodes = node_layout(layout.data, world.rank(), world.ranks_per_node());
    groups.node = world.own_group(name + ".node", purpose, nodes.node);
    groups.across_nodes = world.own_group(name + ".across_nodes", purpose, nodes.across);
  }
  if (secondary_size > 1) {
    groups.secondary = world.own_group(name + ".secondary", purpose,
                                       block_of(layout.data, world.rank(), int(secondary_size)));
  }
  return groups;
}

}  // namespace deepspeed
