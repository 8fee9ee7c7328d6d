// Some optimizers keep numbers per parameter besides their states. 1-bit Lamb has one, "lamb_coeff_freeze". A
// universal checkpoint keeps these numbers among its common values, because DeepSpeed takes each file in a
// parameter's folder for an elementwise state.
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
