// The only place that reads environment variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed::env {

/// Returns the variable's value, or nothing if it is unset or empty.
DEEPSPEED_API std::optional<std::string> get(const char* name);

/// Returns the variable as a whole number. Throws UsageError, naming it, if it is set to anything else.
DEEPSPEED_API std::optional<int64_t> get_int(const char* name);

/// Sets a variable of this process, or removes it if there is no value.
DEEPSPEED_API void set(const char* name, const std::optional<std::string>& value);

}  // namespace deepspeed::env
