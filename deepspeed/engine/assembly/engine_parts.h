// What an engine is put together from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/guards/param_claims.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/ranks/parallel_groups.h"
#include "deepspeed/optim/schedules/lr_scheduler.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

namespace zero {
class GatherPool;
class ParamStore;
}  // namespace zero

/// Everything an engine is made of.
struct EngineParts {
  config::DeepSpeedConfig config;
  comm::World world;
  ParallelGroups groups;
  EngineModel model;
  std::shared_ptr<zero::ZeroOptimizer> optimizer;    // null: evaluation only
  std::shared_ptr<optim::LrScheduler> lr_scheduler;  // null: the rates stay
  uint64_t seed = 0;
  std::optional<at::ScalarType> autocast = {};    // dtype of the config's torch_autocast
  std::shared_ptr<zero::GatherPool> pool = {};    // of stage 3; null: the parameters are not partitioned
  std::shared_ptr<zero::ParamStore> params = {};  // of stage 3 without an optimizer, which has it else
  ParamClaims claims = {};
  std::vector<size_t> given_groups =
      {};  // of each of the optimizer's groups: which of the program's it is of

  /// The ranks that hold the same layers and train them on other data: gradients and ZeRO.
  const comm::ProcessGroup& data_group() const { return groups.data; }
};

}  // namespace deepspeed
