// The model of a pipeline's stage, as an engine takes it.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/engine/model/model.h"
#include "deepspeed/pipe/module/layer.h"

namespace deepspeed::pipe {

/// Returns the name in the stage of what a layer with this prefix calls `name`.
inline std::string name_in(const std::string& prefix, const std::string& name) { return prefix + "." + name; }

/// Joins the models of layers into one, in which names begin with the layer's prefix. Layers of one prefix
/// are one module, which is there once; parameters that several modules hold have the name of the first. The
/// files of its layers are not described yet.
EngineModel join_models(const std::vector<StageLayer>& layers);

}  // namespace deepspeed::pipe
