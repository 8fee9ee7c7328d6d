// Stage 3 gathers units of parameters as one; these are made of the leaf modules of a model.
#pragma once

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

namespace deepspeed {

/// Makes units of the leaves: the marked modules, those that zero_optimization.leaf_module names, and those
/// below stage3_module_granularity_threshold (elements of their parameters / (1 + modules below them)). Of
/// leaves inside of each other the outermost counts. Warns where what the config names is not there. Returns
/// the number of its unit for each parameter. Throws UsageError where two leaves have a parameter in common.
zero::ParamUnits join_leaf_modules(const EngineModel& model, const config::ZeroConfig& zero,
                                   zero::GatherPool& pool);

}  // namespace deepspeed
