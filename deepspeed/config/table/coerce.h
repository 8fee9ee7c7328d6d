// Decides which JSON values count as a truth value, a whole number and a number. The rules are those that
// DeepSpeed's configs rely on: 5e8 and "16" are whole numbers, 0, 1, "on" and "no" are truth values.
#pragma once

#include <cstdint>
#include <optional>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::config {

/// Returns the truth value that `value` means, or nothing. Accepts true, false, 0, 1, and the words
/// true/false, yes/no, on/off, t/f, y/n, 1/0 in any case.
DEEPSPEED_API std::optional<bool> as_bool(const Json& value);

/// Returns `value` as a 64-bit whole number, or nothing. Also accepts a float without fraction, text, and a
/// truth value (1 or 0).
DEEPSPEED_API std::optional<int64_t> as_int(const Json& value);

/// Returns `value` as a finite number, or nothing. Also accepts text and a truth value.
DEEPSPEED_API std::optional<double> as_float(const Json& value);

}  // namespace deepspeed::config
