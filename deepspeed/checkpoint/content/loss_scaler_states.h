// Reads and writes DeepSpeed's loss scaler objects.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Holds the members of DeepSpeed's LossScaler and DynamicLossScaler. If not dynamic, only `cur_scale`
/// matters.
struct LossScalerStates {
  bool dynamic = false;
  double cur_scale = 1.0;
  int64_t cur_iter = 0;
  int64_t last_overflow_iter = -1;
  double scale_factor = 2.0;
  int64_t scale_window = 1000;
  double min_scale = 1.0;
  int64_t delayed_shift = 1;  // the hysteresis of the config
  int64_t cur_hysteresis = 1;
  bool consecutive_hysteresis = false;
  bool raise_error_at_min_scale = true;
  at::ScalarType dtype = at::kHalf;
};

Value build_loss_scaler(const LossScalerStates& states);

/// Reads a loss scaler. Throws CheckpointError if its class is unknown or members are missing.
LossScalerStates parse_loss_scaler(const Value& value);

}  // namespace deepspeed::checkpoint
