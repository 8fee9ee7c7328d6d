// The model of a pipeline's stage, as an engine takes it.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/engine/model/model.h"
#include "deepspeed/pipe/module/layer.h"

namespace deepspeed::pipe {

/// Returns the name in the stage's model of a layer's parameter. `name` is its name in the layer, `prefix` is
/// StageLayer::prefix.
inline std::string name_in(const std::string& prefix, const std::string& name) { return prefix + "." + name; }

/// Joins the models of layers into one, in which names begin with the layer's prefix. Layers with the same
/// prefix are one module and appear once. Parameters shared by several modules have their first name. The
/// description of checkpoint files is added later.
EngineModel join_models(const std::vector<StageLayer>& layers);

}  // namespace deepspeed::pipe
