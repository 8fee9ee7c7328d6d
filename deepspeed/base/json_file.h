// Reads hand-written JSON. Comments (`//`, `/* */`, `#`) and trailing commas are allowed; duplicate keys are
// not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed {

/// The deepest nesting that is accepted, so that code that walks a value may recurse.
inline constexpr size_t kMaxJsonDepth = 64;
/// The longest text that is accepted, in bytes.
inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;

/// Parses `text`, of at most `max_bytes`. Throws ConfigError that names `source`, the line, the column and,
/// if one is at fault, the key. Faults are syntax errors, a key given twice in one object, numbers that no
/// double holds, and nesting beyond kMaxJsonDepth.
DEEPSPEED_API Json parse_json(const std::string& text, const std::string& source,
                              size_t max_bytes = kMaxJsonBytes);

/// Parses a file as parse_json() does. Throws IoError if the file cannot be read, is too long, or is not a
/// regular file.
DEEPSPEED_API Json read_json_file(const std::filesystem::path& path);

/// Holds a position in a text: line and column, both counted from 1.
struct TextPosition {
  size_t line = 1;
  size_t column = 1;
};

/// Returns the position of the byte at `offset`. Beyond the end it is just after the last byte.
DEEPSPEED_API TextPosition position_in(const std::string& text, size_t offset);

/// Returns `text` with comments and trailing commas overwritten by spaces. The result is strict JSON whose
/// bytes keep their lines and columns. Throws ConfigError, naming `source` and the place, for a comment
/// without end.
DEEPSPEED_API std::string blank_comments(std::string text, const std::string& source);

/// Returns `key` as part of a dotted path. A key with characters other than letters, digits, _ and -, or
/// longer than 80 bytes, is quoted and shortened.
DEEPSPEED_API std::string path_part(const std::string& key);

/// Returns the first 80 bytes of the value's JSON text, for an error message.
DEEPSPEED_API std::string json_excerpt(const Json& value);

}  // namespace deepspeed
