// Measures the cost of a model's layers, for partition_method "profile".
#pragma once

#include <vector>

#include "deepspeed/pipe/module/layer_spec.h"

namespace deepspeed::pipe {

/// Returns the seconds that each layer's forward and backward take. Each layer is built, run on the outputs
/// of the layer before and dropped, so no two are in memory at once. The default generators are left
/// unchanged.
std::vector<double> time_layers(const std::vector<LayerSpec>& specs, const Tensors& inputs);

}  // namespace deepspeed::pipe
