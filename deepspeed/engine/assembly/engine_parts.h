// Defines the parts that an engine is assembled from.
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

/// Holds everything that an engine is made of.
struct EngineParts {
  config::DeepSpeedConfig config;
  comm::World world;
  ParallelGroups groups;
  EngineModel model;
  std::shared_ptr<zero::ZeroOptimizer> optimizer;    // null: evaluation only
  std::shared_ptr<optim::LrScheduler> lr_scheduler;  // null: the learning rates are constant
  uint64_t seed = 0;
  std::optional<at::ScalarType> autocast = {};  // dtype of the config's torch_autocast
  std::shared_ptr<zero::GatherPool> pool = {};  // set only at stage 3; null: parameters are not partitioned
  /// Holds the parameters at stage 3 if there is no optimizer. Otherwise the optimizer owns them, and this is
  /// null.
  std::shared_ptr<zero::ParamStore> params = {};
  ParamClaims claims = {};
  /// Says for each optimizer group from which of the program's groups it came.
  std::vector<size_t> given_groups = {};

  /// Returns the ranks that hold the same layers and train them on other data. Gradients are reduced and ZeRO
  /// partitions over them.
  const comm::ProcessGroup& data_group() const { return groups.data; }
};

}  // namespace deepspeed
