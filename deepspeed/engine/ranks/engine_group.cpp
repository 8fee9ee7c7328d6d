#include "deepspeed/engine/ranks/engine_group.h"

#include <functional>
#include <sstream>

#include "deepspeed/zero/layout/rank_sharing.h"

namespace deepspeed {
namespace {

// Engines of one config over equal parameters could train each other's data unnoticed; others are found to
// differ when the ranks compare them.
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
  // Ranks that share a model out have other parameters each.
  const std::string purpose = layout.model.size() == 1 ? purpose_of(config, model) : config.raw.dump();
  return make_parallel_groups(world, layout, own_name, purpose,
                              zero::rank_sharing(config.zero_optimization, int(layout.data.size())));
}

}  // namespace deepspeed
