// Small transformations of text.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace deepspeed {

/// Changes ASCII letters to lower case.
inline std::string lowercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns the first line of a text, such as a c10d error's text without its stack trace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace deepspeed
