// Returns the tensors of a model as checkpoints store them.
#pragma once

#include <utility>
#include <vector>

#include "deepspeed/engine/model/model.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// Returns parameters and buffers by name; a shared tensor appears under each of its names. They share the
/// model's memory. A partitioned parameter is replaced by an empty tensor, as in DeepSpeed's stage 3 files.
/// exclude_frozen: leave out parameters that need no gradient.
NamedTensors module_tensors(const EngineModel& model, bool exclude_frozen);
/// Returns the tensors of each layer that this pipeline stage writes. They have the names in the layer's
/// file.
std::vector<std::pair<const StoredLayer*, NamedTensors>> layer_tensors(const EngineModel& model,
                                                                       bool exclude_frozen);

}  // namespace deepspeed
