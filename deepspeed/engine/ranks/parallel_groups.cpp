#include "deepspeed/engine/ranks/parallel_groups.h"

#include <functional>
#include <numeric>
#include <sstream>

#include "deepspeed/zero/layout/rank_sharing.h"

namespace deepspeed {

RankLayout data_parallel_layout(int num_ranks, int rank) {
  RankLayout layout{std::vector<int>(num_ranks), {rank}, {rank}};
  std::iota(layout.data.begin(), layout.data.end(), 0);
  return layout;
}

ParallelGroups make_parallel_groups(const comm::World& world, const RankLayout& layout,
                                    const std::string& name, const std::string& purpose,
                                    const zero::RankSharing& sharing) {
  ParallelGroups groups;
  groups.all = world.own_group(name, purpose);
  const bool is_whole = int(layout.data.size()) == world.size();
  groups.data = is_whole ? groups.all : world.own_group(name + ".data", purpose, layout.data);
  if (layout.model.size() > 1) groups.model = world.own_group(name + ".model", purpose, layout.model);
  groups.slices = layout.slices;
  groups.is_first_slice = layout.slices.front() == world.rank();
  groups.num_stages = layout.num_stages;
  groups.slices_are_neighbours = layout.slices_are_neighbours;
  groups.zero = zero::make_zero_groups(world, groups.data, sharing, name, purpose);
  groups.zero.model = groups.model;
  return groups;
}

namespace {

// Describes what an engine is for, by its config and parameters. Engines with equal configs over equal
// parameters could mix up their data unnoticed. Other mix-ups are detected when the ranks compare their
// input.
std::string purpose_of(const config::DeepSpeedConfig& config, const EngineModel& model) {
  std::ostringstream text;
  text << config.raw.dump();
  for (const NamedTensor& param : model.parameters) text << param.name << param.tensor.sizes();
  return std::to_string(std::hash<std::string>()(text.str()));
}

}  // namespace

ParallelGroups make_engine_groups(const comm::World& world, const std::string& name,
                                  const config::DeepSpeedConfig& config, const EngineModel& model,
                                  const RankLayout& layout) {
  const std::string own_name = name.empty() ? "engine" : "engine '" + name + "'";
  // Ranks that divide a model have different parameters.
  const std::string purpose = layout.model.size() == 1 ? purpose_of(config, model) : config.raw.dump();
  return make_parallel_groups(world, layout, own_name, purpose,
                              zero::rank_sharing(config.zero_optimization, int(layout.data.size())));
}

}  // namespace deepspeed
