// Puts an engine together from a config and a model: precision, groups, optimizer, schedule.
#pragma once

#include "deepspeed/engine/build/engine_parts.h"
#include "deepspeed/engine/build/initialize_options.h"
#include "deepspeed/engine/model/model.h"

namespace deepspeed {

/// Makes the parts of an engine. The model's parameters are cast, flattened and broadcast from rank 0 here.
EngineParts build_engine(EngineModel model, const InitializeOptions& options);

}  // namespace deepspeed
