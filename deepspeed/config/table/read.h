// Reads JSON against the tables: every fault is a ConfigError that names the key's path, what it got and what
// it expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/json.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Joins the path of a section and a key in it: "fp16.enabled"; the top level's path is empty.
std::string join(const std::string& path, const std::string& key);

/// Reads the keys that `given` has, under their present names and with canonical values: bool, int64, double,
/// string in a choice's spelling, lists, objects. Sections are read likewise. `path` names the section in
/// errors.
Json read_section(const Field& section, const Json& given, const std::string& path);

/// Finds the field that a key names, by its name or an alias; null where there is none.
const Field* find_field(const std::vector<Field>& fields, const std::string& key);

/// Returns the value that read_section() would store, sections as they were given; nothing where it would
/// refuse it.
std::optional<Json> canonical_value(const Field& field, const Json& given);

/// Lists "path (why)" for each of read_section()'s values that is not the default and does not act. config:
/// the values of the whole config, in which conditions are looked up.
std::vector<std::string> values_without_effect(const Field& section, const Json& values,
                                               const std::string& path, const Json& config = {});

/// Throws where objects and lists are nested deeper than a text may nest them.
void require_bounded_depth(const Json& value);

}  // namespace deepspeed::config
