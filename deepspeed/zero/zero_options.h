// Settings of ZeRO from a config, for each of its parts.
#pragma once

#include "deepspeed/config/zero/sections.h"
#include "deepspeed/zero/gradients/reducer_options.h"
#include "deepspeed/zero/update/step_options.h"

namespace deepspeed::zero {

/// Holds the options of each part of ZeRO. The store holds the stage.
struct ZeroOptions {
  ReducerOptions gradients;
  StepOptions update;
  config::PartitionGatherConfig gather;  // for the updated parameters at stages 1 and 2
};

}  // namespace deepspeed::zero
