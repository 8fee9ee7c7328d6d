// Reads JSON that people wrote: comments (`//`, `/* */`, `#`) and trailing commas are allowed, a key given
// twice is not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed {

/// The deepest nesting that is read: code that walks the value may then recurse.
inline constexpr size_t kMaxJsonDepth = 64;
/// The longest text that is read; longer ones are an error.
inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;

/// Reads the value of `text`, of at most `max_bytes`. Throws ConfigError that names `source`, the line, the
/// column and, where one is at fault, the key: syntax errors, a key given twice in one object, numbers that
/// no double holds, nesting beyond kMaxJsonDepth.
DEEPSPEED_API Json parse_json(const std::string& text, const std::string& source,
                              size_t max_bytes = kMaxJsonBytes);

/// Reads the value of a file, as parse_json() does. Throws IoError where the file cannot be read, is longer,
/// or is no regular one.
DEEPSPEED_API Json read_json_file(const std::filesystem::path& path);

/// A place in a text: line and column, both counted from 1.
struct TextPosition {
  size_t line = 1;
  size_t column = 1;
};

/// The position of the byte at `offset`; past the end it is the position just after the last byte.
DEEPSPEED_API TextPosition position_in(const std::string& text, size_t offset);

/// `text` with every comment and trailing comma overwritten by spaces, so that what is left is strict JSON
/// whose bytes keep their lines and columns. Throws ConfigError, naming `source` and the place, for a comment
/// without end.
DEEPSPEED_API std::string blank_comments(std::string text, const std::string& source);

/// Writes `key` as it stands in a dotted path: plain, or quoted and cut where it has other characters than a
/// name.
DEEPSPEED_API std::string path_part(const std::string& key);

/// Returns the start of the value's text, for an error message.
DEEPSPEED_API std::string json_excerpt(const Json& value);

}  // namespace deepspeed
