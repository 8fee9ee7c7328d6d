// Reads JSON against the tables. Every fault is a ConfigError that names the key's path, what it got and what
// it expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"
#include "deepspeed/config/table/named_type.h"

namespace deepspeed::config {

/// Returns the keys in `given` under their current names, with canonical values. Values are bool, int64,
/// double, string in a choice's spelling, lists and objects. Nested sections are read the same way. `path`
/// names the section in errors.
DEEPSPEED_API Json read_section(const Field& section, const Json& given, const std::string& path);

/// Returns the value that read_section() would store, or nothing if it would refuse it. Sections stay as
/// given.
std::optional<Json> canonical_value(const Field& field, const Json& given);

/// Returns "path (why)" for each value that is not the default and has no effect. `values` come from
/// read_section(). config: values of the whole config, used for conditions.
std::vector<std::string> values_without_effect(const Field& section, const Json& values,
                                               const std::string& path, const Json& config = {});

/// Reads the values of all parameters of the type, in canonical form and with defaults. null counts as
/// absent. `path` names the object in errors: "optimizer.params". Throws ConfigError as read_section() does,
/// and if `given` is neither an object nor null or lacks a required parameter.
DEEPSPEED_API Json read_params(const NamedType& type, const Json& given, const std::string& path);
/// Reads the parameters as read_params() does, but does not log values without effect.
DEEPSPEED_API Json resolve_params(const NamedType& type, const Json& given, const std::string& path);

/// Throws ConfigError if objects and lists are nested deeper than kMaxJsonDepth.
void require_bounded_depth(const Json& value);

}  // namespace deepspeed::config
