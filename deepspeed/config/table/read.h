// Reads JSON against the tables. Every fault is a ConfigError that names the key's path, what it got and what
// it expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Joins the path of a section and a key in it: "fp16.enabled". The top level's path is empty.
std::string join(const std::string& path, const std::string& key);

/// Returns the keys in `given` under their current names, with canonical values. Values are bool, int64,
/// double, string in a choice's spelling, lists and objects. Nested sections are read the same way. `path`
/// names the section in errors.
DEEPSPEED_API Json read_section(const Field& section, const Json& given, const std::string& path);

/// Finds the field that a key names, directly or by an alias. Null if there is none.
const Field* find_field(const std::vector<Field>& fields, const std::string& key);

/// Returns the value that read_section() would store; nothing if it would refuse it. Sections stay as given.
std::optional<Json> canonical_value(const Field& field, const Json& given);

/// Lists "path (why)" for each value that is not the default and has no effect. `values` come from
/// read_section(). config: values of the whole config, used for conditions.
std::vector<std::string> values_without_effect(const Field& section, const Json& values,
                                               const std::string& path, const Json& config = {});

/// Throws if objects and lists are nested deeper than a JSON text may nest them.
void require_bounded_depth(const Json& value);

}  // namespace deepspeed::config
