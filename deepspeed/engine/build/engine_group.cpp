#include "deepspeed/engine/build/engine_group.h"

#include <functional>
#include <sstream>

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

comm::ProcessGroup make_engine_group(const comm::World& world, const std::string& name,
                                     const config::DeepSpeedConfig& config, const EngineModel& model) {
  return world.own_group(name.empty() ? "engine" : "engine '" + name + "'", purpose_of(config, model));
}

}  // namespace deepspeed
