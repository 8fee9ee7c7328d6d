// What this version has of what DeepSpeed documents.
#pragma once

#include <string>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Throws ConfigError for the first value of the section, as it was given, that is documented and that this
/// version does not have. It asks nothing of the rest of the config, which may depend on such a value: what
/// is wrong there is for read_section to say.
void require_supported(const Field& section, const Json& given, const std::string& path);

}  // namespace deepspeed::config
