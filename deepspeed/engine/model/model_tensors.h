// The tensors of a model as checkpoints hold them.
#pragma once

#include <utility>
#include <vector>

#include "deepspeed/engine/model/model.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {

/// Returns parameters, those that share a tensor under each of their names, and buffers. They share the
/// model's memory; in place of a parameter that is partitioned stands an empty tensor, as in DeepSpeed's
/// files of stage 3. exclude_frozen: without parameters that need no gradient.
NamedTensors module_tensors(const EngineModel& model, bool exclude_frozen);
/// Returns the tensors of each layer that this stage of a pipeline writes, by their names in its file.
std::vector<std::pair<const StoredLayer*, NamedTensors>> layer_tensors(const EngineModel& model,
                                                                       bool exclude_frozen);

}  // namespace deepspeed
