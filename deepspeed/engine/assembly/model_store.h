// Turns a model's parameters into what its ZeRO stage stores.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/guards/param_claims.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/layout/zero_groups.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed {

struct ModelStore {
  std::unique_ptr<zero::ParamStore> params;  // null if there are no groups, except at stage 3
  std::shared_ptr<zero::GatherPool> pool;    // set at stage 3
};

/// Claims for an engine the parameters whose memory make_store() replaces. Parameters that make_store() only
/// casts or gathers are not claimed, but must be unclaimed. Throws UsageError, naming the parameter, if
/// another engine has claimed it.
ParamClaims claim_parameters(const EngineModel& model, const std::vector<std::vector<NamedTensor>>& groups,
                             int64_t stage, at::ScalarType dtype);

/// Casts the model's parameters and gives all ranks the values of rank 0. Parameters in `groups` go into the
/// store; no optimizer updates the others. Stage 3 partitions both. Collective. Throws UsageError, naming the
/// parameter, if one does not fit. Throws IoError on all ranks if one has no room for its shards.
ModelStore make_store(const config::DeepSpeedConfig& config, std::vector<std::vector<NamedTensor>> groups,
                      const EngineModel& model, const zero::ZeroGroups& ranks, at::ScalarType dtype);

}  // namespace deepspeed
