// JSON in checkpoint files: configs, schedules' states and hyperparameters stand there as plain dicts.
#pragma once

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

Value value_of_json(const Json& json);

/// Tuples, sets and sizes become arrays, whole-number keys become texts, 0-d tensors numbers. Throws
/// CheckpointError for what JSON cannot say: larger tensors, bytes, objects.
Json json_of_value(const Value& value);

}  // namespace deepspeed::checkpoint
