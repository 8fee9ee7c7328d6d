// The communicators of an engine: engines of one process meet their peers on other ranks each by itself.
#pragma once

#include <string>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/ranks/parallel_groups.h"

namespace deepspeed {

/// Collective. name: InitializeOptions::engine_name. Throws UsageError where another thread's engine could be
/// taken for this one (comm::World::own_group()).
ParallelGroups make_engine_groups(const comm::World& world, const std::string& name,
                                  const config::DeepSpeedConfig& config, const EngineModel& model,
                                  const RankLayout& layout);

}  // namespace deepspeed
