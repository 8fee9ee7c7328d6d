// Some optimizers keep one number per parameter in addition to their states, such as "lamb_coeff_freeze" of
// 1-bit Lamb. A universal checkpoint keeps all of them together with its common values. DeepSpeed would take
// each file in a parameter's folder for an elementwise state.
#pragma once

#include <map>
#include <string>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Maps a number's name, then the parameter's name, to its value.
using ParameterNumbers = std::map<std::string, std::map<std::string, double>>;

/// Key of these numbers in zero/optimizer_state.pt. DeepSpeed ignores it.
inline constexpr const char* kParameterNumbers = "parameter_numbers";

Dict build_parameter_numbers(const ParameterNumbers& numbers);

/// Reads what build_parameter_numbers() wrote. Throws CheckpointError for anything else.
ParameterNumbers parse_parameter_numbers(const Value& value);

}  // namespace deepspeed::checkpoint
