// Checkpoint files hold JSON as plain dicts: configs, schedule states and hyperparameters.
#pragma once

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

Value value_of_json(const Json& json);

/// Returns the value as JSON. Tuples, sets and torch.Size values become arrays, integer keys become strings,
/// and 0-d tensors become numbers. Throws CheckpointError for what JSON cannot express: larger tensors, bytes
/// and objects.
Json json_of_value(const Value& value);

}  // namespace deepspeed::checkpoint
