// Small transformations of text.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Changes ASCII letters to lower case.
inline std::string lowercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns the first line of a text, such as a c10d error's text without its stack trace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Says whether each character begins and goes on as UTF-8 demands.
DEEPSPEED_API bool is_utf8(const std::string& text);

/// Returns the text with a '?' for each byte that is of no character of UTF-8.
DEEPSPEED_API std::string as_utf8(const std::string& text);

}  // namespace deepspeed
