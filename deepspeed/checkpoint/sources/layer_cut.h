// Finds the layers of each pipeline stage in DeepSpeed's checkpoints of ZeRO stage 0. Those save a stage's
// optimizer without parameter names. The states are in the order of the stage's layers, so their sizes tell
// which layers the stage had.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"

namespace deepspeed::checkpoint {

struct LayerParameters {
  NamedShapes params;    // in the layer's order; tied layers use the same names
  bool is_tied = false;  // a stage lists the parameters of its tied layers first, and once
};

/// Describes the parameters in the optimizer of a saved pipeline stage.
struct StageSizes {
  std::optional<int64_t> flat_numel;  // elements of all parameters, if their states are flat
  std::vector<std::optional<std::vector<int64_t>>>
      shapes;  // otherwise one per parameter; unset if it has no state
};
StageSizes sizes_of(const PlainGroupStates& group);

/// Lists the parameters of each stage, in the order of its optimizer.
using StageParameters = std::vector<NamedShapes>;

/// Finds how the layers can be cut into one consecutive part per stage. Each part must have parameters of its
/// stage's sizes. Returns one way, or none if no cut fits. It returns two ways if the sizes do not decide.
std::vector<StageParameters> find_cuts(const std::vector<LayerParameters>& layers,
                                       const std::vector<StageSizes>& stages);

}  // namespace deepspeed::checkpoint
