// Assembles an engine from a config and a model: precision, groups, optimizer, schedule.
#pragma once

#include "deepspeed/engine/assembly/engine_parts.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/model/model.h"

namespace deepspeed {

/// Makes the parts of an engine whose ranks are described by `options`. All ranks hold the whole model, or
/// divide it as options.mpu says. Parameters are cast, flattened and broadcast from data-parallel rank 0
/// here.
EngineParts build_engine(EngineModel model, const InitializeOptions& options);
/// Makes the parts of an engine whose ranks divide the model as `layout` says. `world` has these ranks;
/// `model` is this rank's part.
EngineParts build_engine(EngineModel model, const InitializeOptions& options, const comm::World& world,
                         const RankLayout& layout);

}  // namespace deepspeed
