// Some optimizers keep numbers of whole parameters beside their states, as 1-bit Lamb does
// ("lamb_coeff_freeze"). A universal checkpoint has them together, beside what parameters share: DeepSpeed
// takes each file in a parameter's folder for a state of its elements.
#pragma once

#include <map>
#include <string>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Numbers by their name, and by the name of the parameter.
using ParameterNumbers = std::map<std::string, std::map<std::string, double>>;

/// Names their entry in zero/optimizer_state.pt, which DeepSpeed passes over.
inline constexpr const char* kParameterNumbers = "parameter_numbers";

Dict build_parameter_numbers(const ParameterNumbers& numbers);

/// Reads what build_parameter_numbers() makes. Throws CheckpointError where something else is there.
ParameterNumbers parse_parameter_numbers(const Value& value);

}  // namespace deepspeed::checkpoint
