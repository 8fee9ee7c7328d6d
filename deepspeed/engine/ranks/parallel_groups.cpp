#include "deepspeed/engine/ranks/parallel_groups.h"

namespace deepspeed {

ParallelGroups make_parallel_groups(const comm::World& world, const RankLayout& layout,
                                    const std::string& name, const std::string& purpose,
                                    const zero::RankSharing& sharing) {
  ParallelGroups groups;
  groups.all = world.own_group(name, purpose);
  const bool is_whole = int(layout.data.size()) == world.size();
  groups.data = is_whole ? groups.all : world.own_group(name + ".data", purpose, layout.data);
  if (layout.model.size() > 1) groups.model = world.own_group(name + ".model", purpose, layout.model);
  groups.num_stages = layout.num_stages;
  groups.slices_are_neighbours = layout.slices_are_neighbours;
  groups.zero = zero::make_zero_groups(world, groups.data, sharing, name, purpose);
  groups.zero.model = groups.model;
  return groups;
}

}  // namespace deepspeed
