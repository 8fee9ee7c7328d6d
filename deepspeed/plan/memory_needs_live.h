// The numbers that the planning functions need, taken from an existing model.
#pragma once

#include <cstdint>

#include "deepspeed/engine/model/model.h"

namespace deepspeed::zero {

struct ModelSize {
  int64_t total_params = 0;          // shared parameters count once
  int64_t largest_layer_params = 0;  // of the largest module, without its children's
};

ModelSize model_size(const EngineModel& model);

}  // namespace deepspeed::zero
