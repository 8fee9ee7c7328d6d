// Measures what the layers of a model cost, for partition_method "profile".
#pragma once

#include <vector>

#include "deepspeed/pipe/module/layer_spec.h"

namespace deepspeed::pipe {

/// Returns the seconds of a forward and a backward of each layer, which is built, run on what the layer
/// before it gives and dropped again: no two layers are in memory at once. The default generators are left as
/// they were.
std::vector<double> time_layers(const std::vector<LayerSpec>& specs, const Tensors& inputs);

}  // namespace deepspeed::pipe
