// Converts hyperparameters to and from JSON, for the options of model_parameters and for checkpoints.
#pragma once

#include <string>

#include "deepspeed/base/json.h"
#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed {

Json to_json(const optim::Hyperparameters& options);

/// Sets every entry of `given`, a JSON object, in `options`; skips nulls. `where` names the object in errors.
/// Throws UsageError for a value that is not a truth value, number, text or pair of numbers.
void set_from_json(optim::Hyperparameters& options, const Json& given, const std::string& where);

}  // namespace deepspeed
