// JSON stands in checkpoint files as plain dicts: configs, schedules' states and hyperparameters.
#pragma once

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

Value value_of_json(const Json& json);

/// Returns the value as JSON. Tuples, sets and sizes become arrays, whole-number keys become texts, 0-d
/// tensors numbers. Throws CheckpointError for what JSON cannot say: larger tensors, bytes, objects.
Json json_of_value(const Value& value);

}  // namespace deepspeed::checkpoint
