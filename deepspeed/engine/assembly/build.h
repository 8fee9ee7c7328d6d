// Puts an engine together from a config and a model: precision, groups, optimizer, schedule.
#pragma once

#include "deepspeed/engine/assembly/engine_parts.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/engine/model/model.h"

namespace deepspeed {

/// Makes the parts of an engine over ranks that all hold the whole model, or share it out as options.mpu
/// says. The model's parameters are cast, flattened and broadcast from the data-parallel rank 0 here.
EngineParts build_engine(EngineModel model, const InitializeOptions& options);
/// Makes the parts of an engine whose ranks, those of `world`, share the model out as `layout` says; `model`
/// has this rank's part of it.
EngineParts build_engine(EngineModel model, const InitializeOptions& options, const comm::World& world,
                         const RankLayout& layout);

}  // namespace deepspeed
