// Reads JSON against the tables: every fault is a ConfigError that names the key's path, what it got and what
// it expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// `path` of a section and a key in it: "fp16.enabled"; the top level's path is empty.
std::string join(const std::string& path, const std::string& key);

/// The keys that `given` has, under their present names and with canonical values: bool, int64, double,
/// string in a choice's spelling, lists, objects. Sections are read likewise. `path` names the section in
/// errors.
Json read_section(const Field& section, const Json& given, const std::string& path);

/// The field that goes by the key, as its name or as an alias; null where there is none.
const Field* find_field(const std::vector<Field>& fields, const std::string& key);

/// What read_section makes of a value, sections as they were given; nothing where it would refuse it.
std::optional<Json> canonical_value(const Field& field, const Json& given);

/// "path (why)" of each value, of those that read_section gave, that is not the default and does not act.
/// config: the values of the whole config, where keys of it are a condition.
std::vector<std::string> values_without_effect(const Field& section, const Json& values,
                                               const std::string& path, const Json& config = {});

/// Throws where objects and lists are nested deeper than a text may nest them.
void require_bounded_depth(const Json& value);

}  // namespace deepspeed::config
