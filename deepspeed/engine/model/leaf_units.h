// Makes a model's leaf modules into units: sets of parameters that stage 3 gathers together.
#pragma once

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/gradients/grad_reducer.h"

namespace deepspeed {

/// Joins each leaf's parameters into one unit of `pool`, and returns each parameter's unit number. Leaves are
/// the marked modules, those that zero_optimization.leaf_module names, and fine-grained ones. A module is
/// fine-grained if the elements of its parameters / (1 + modules below it) are fewer than
/// stage3_module_granularity_threshold. Of nested leaves the outermost counts. Warns if a name in the config
/// matches nothing. Throws UsageError if two leaves share a parameter.
zero::ParamUnits join_leaf_modules(const EngineModel& model, const config::ZeroConfig& zero,
                                   zero::GatherPool& pool);

}  // namespace deepspeed
