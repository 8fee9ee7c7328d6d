// Reads and writes DeepSpeed's loss scaler objects.
#pragma once

#include "deepspeed/checkpoint/content/optimizer_states.h"

namespace deepspeed::checkpoint {

Value build_loss_scaler(const LossScalerStates& states);

/// Reads a loss scaler. Throws CheckpointError if its class is unknown or members are missing.
LossScalerStates parse_loss_scaler(const Value& value);

}  // namespace deepspeed::checkpoint
