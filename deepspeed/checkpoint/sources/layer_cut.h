// DeepSpeed's pipelines save the optimizer of each stage at ZeRO stage 0 without the names of its parameters.
// They lie in the order of the stage's layers, so that the sizes of the states say which layers a stage had.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"

namespace deepspeed::checkpoint {

struct LayerParameters {
  NamedShapes params;    // in the layer's order; those of tied layers under the same names
  bool is_tied = false;  // a stage has the parameters of its tied layers first, and once
};

/// Says what the optimizer of a saved stage tells about its parameters.
struct StageSizes {
  std::optional<int64_t> flat_numel;                        // of all together, where they are flat
  std::vector<std::optional<std::vector<int64_t>>> shapes;  // else of each; nothing: it has no state
};
StageSizes sizes_of(const PlainGroupStates& group);

/// Lists the parameters of each stage, in the order of its optimizer.
using StageParameters = std::vector<NamedShapes>;

/// Cuts the layers into consecutive parts, one a stage, whose parameters have the sizes. Returns the ways
/// that lists of parameters can be shared out so, two at the most: none where no cut fits.
std::vector<StageParameters> find_cuts(const std::vector<LayerParameters>& layers,
                                       const std::vector<StageSizes>& stages);

}  // namespace deepspeed::checkpoint
