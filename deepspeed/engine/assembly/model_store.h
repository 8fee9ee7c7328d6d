// Makes of a model's parameters what its ZeRO stage holds of them.
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
  std::unique_ptr<zero::ParamStore> params;  // null where there are no groups, but at stage 3
  std::shared_ptr<zero::GatherPool> pool;    // of stage 3
};

/// Claims what make_store() will give other memory; of the rest, what it will cast. Throws UsageError, naming
/// the parameter, where another engine has one.
ParamClaims claim_parameters(const EngineModel& model, const std::vector<std::vector<NamedTensor>>& groups,
                             int64_t stage, at::ScalarType dtype);

/// Casts the model's parameters and gives all ranks the values of rank 0: those of `groups`, which the store
/// has, and those that no optimizer updates. Stage 3 partitions both. Collective. Throws UsageError, naming
/// the parameter, for one that does not fit, IoError on all ranks where one has no place for its shards.
ModelStore make_store(const config::DeepSpeedConfig& config, std::vector<std::vector<NamedTensor>> groups,
                      const EngineModel& model, const zero::ZeroGroups& ranks, at::ScalarType dtype);

}  // namespace deepspeed
