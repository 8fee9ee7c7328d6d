// The one place that reads environment variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed::env {

/// The variable's value, or nothing where it is unset or empty.
DEEPSPEED_API std::optional<std::string> get(const char* name);

/// The variable as a whole number. Throws UsageError, naming the variable, where it is set and is no number.
DEEPSPEED_API std::optional<int64_t> get_int(const char* name);

/// Sets (or with nothing removes) a variable of this process.
DEEPSPEED_API void set(const char* name, const std::optional<std::string>& value);

}  // namespace deepspeed::env
