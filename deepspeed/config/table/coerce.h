// Which JSON values pass for a truth value, a whole number and a number. The rules are those that DeepSpeed's
// configs are written against: 5e8 and "16" are whole numbers, 0, 1, "on" and "no" are truth values.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Reads a truth value: true, false, 0, 1, and the words true/false, yes/no, on/off, t/f, y/n, 1/0 in any
/// case.
std::optional<bool> as_bool(const Json& value);

/// Reads a whole number of 64 bits, also as a float without fraction, as text, or as a truth value (1 and 0).
std::optional<int64_t> as_int(const Json& value);

/// Reads a finite number, also as text or as a truth value.
std::optional<double> as_float(const Json& value);

}  // namespace deepspeed::config
