// DeepSpeed's loss scaler objects in a file.
#pragma once

#include "deepspeed/checkpoint/content/optimizer_states.h"

namespace deepspeed::checkpoint {

Value build_loss_scaler(const LossScalerStates& states);

/// Throws CheckpointError for an object of another class or without its members.
LossScalerStates parse_loss_scaler(const Value& value);

}  // namespace deepspeed::checkpoint
