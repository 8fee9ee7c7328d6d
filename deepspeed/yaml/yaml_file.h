// Reads YAML as JSON values that remember their lines, and writes JSON values as YAML.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed {

/// Holds what a YAML text says, and the line of each of its values.
struct YamlDocument {
  Json value;                           ///< null for a text without a value
  std::string source;                   ///< the file, for messages
  std::map<std::string, size_t> lines;  ///< by the path of a value: "deepspeed_config.zero_stage", "hosts[0]"

  /// Returns "FILE line N" for the value at `path`, or for the nearest value around it that has a line.
  DEEPSPEED_API std::string place_of(const std::string& path) const;
};

/// Parses one YAML document of at most kMaxJsonBytes. Plain scalars get the types that PyYAML's safe_load()
/// gives them: `no` is false, `1e-3` is text, `1.0e-3` is a number, `010` is 8. Dates stay text. Anchors and
/// merge keys (`<<`) are resolved. Throws ConfigError that names `source`, the line and, if one is at fault,
/// the key. Faults are syntax errors, a key given twice, tags other than YAML's basic ones, a second
/// document, nesting beyond kMaxJsonDepth, and anchors that unfold to more than kMaxJsonBytes values.
DEEPSPEED_API YamlDocument parse_yaml(const std::string& text, const std::string& source);

/// Parses a file as parse_yaml() does. Throws IoError as read_json_file() does.
DEEPSPEED_API YamlDocument read_yaml_file(const std::filesystem::path& path);

/// Writes `value` as YAML, one key a line, in the order of its keys. Text that PyYAML would read as another
/// type is quoted, so that parse_yaml() and PyYAML return `value`.
DEEPSPEED_API std::string to_yaml(const Json& value);

}  // namespace deepspeed
