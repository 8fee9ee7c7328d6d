// What ZeRO is told by a config, for each of its parts.
#pragma once

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

/// What each part of ZeRO is given; the stage is the store's.
struct ZeroOptions {
  ReducerOptions gradients;
  StepOptions update;
  config::PartitionGatherConfig gather;  // stages 1 and 2: of the updated parameters
};

}  // namespace deepspeed::zero
