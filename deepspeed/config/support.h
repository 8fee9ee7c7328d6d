// Refuses what DeepSpeed documents and this version does not support.
#pragma once

#include <string>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Throws ConfigError for the first given value that is documented but not supported. Ignores other faults,
/// which read_section() reports: the rest of the config may depend on the value.
void require_supported(const Field& section, const Json& given, const std::string& path);

}  // namespace deepspeed::config
