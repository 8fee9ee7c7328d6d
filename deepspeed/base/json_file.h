// Reads JSON that people wrote: comments and trailing commas are allowed, a key given twice is not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "deepspeed/base/json.h"

namespace deepspeed {

/// Deeper nesting is an error: what walks the value later may then recurse.
inline constexpr size_t kMaxJsonDepth = 64;
/// Longer texts are an error.
inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;

/// The value of `text`. Throws ConfigError that names `source`, the line, the column and, where one is at
/// fault, the key: syntax errors, a key given twice in one object, numbers that no double holds, nesting
/// beyond kMaxJsonDepth.
Json parse_json(const std::string& text, const std::string& source);

/// The value of a file, as parse_json. Throws IoError where the file cannot be read.
Json read_json_file(const std::filesystem::path& path);

/// `key` as it stands in a dotted path: plain, or quoted and cut where it has other characters than a name.
std::string path_part(const std::string& key);

/// The start of the value's text, for an error message.
std::string json_excerpt(const Json& value);

}  // namespace deepspeed
