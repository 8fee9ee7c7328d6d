// Refuses what DeepSpeed documents and this version does not have.
#pragma once

#include <string>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Throws ConfigError for the first value of the section, as it was given, that is documented and that this
/// version does not have. Other faults are left to read_section(), since the rest of the config may depend on
/// such a value.
void require_supported(const Field& section, const Json& given, const std::string& path);

}  // namespace deepspeed::config
