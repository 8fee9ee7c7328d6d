// Refuses what DeepSpeed documents and this version does not support.
#pragma once

#include <string>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Throws ConfigError for the first value in `given` that is documented but not supported. Unknown keys and
/// wrong values are ignored here; read_section() reports them later. An unsupported value is reported first,
/// since the rest of the config may depend on it. `path` names the section in errors.
void require_supported(const Field& section, const Json& given, const std::string& path);

}  // namespace deepspeed::config
