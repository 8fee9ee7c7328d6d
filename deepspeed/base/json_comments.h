// What JSON files for people have and strict JSON has not: comments (`//`, `/* */`, `#`) and trailing commas.
#pragma once

#include <cstddef>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed {

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

}  // namespace deepspeed
