// Small transformations of text.
#pragma once

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Changes ASCII letters to lower case.
inline std::string lowercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns the first line of a text, for instance a c10d error without its stack trace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Returns whether the text is valid UTF-8.
DEEPSPEED_API bool is_utf8(const std::string& text);

/// Returns the text with a '?' for each byte outside any UTF-8 character.
DEEPSPEED_API std::string as_utf8(const std::string& text);

/// Decodes `text` in an alphabet of RFC 4648: with '+' and '/', or '-' and '_'. The padding at the end may be
/// missing. Returns nothing for other characters or an impossible length.
DEEPSPEED_API std::optional<std::string> decode_base64(std::string_view text);

/// Encodes `bytes` in RFC 4648's alphabet for URLs ('-' and '_'), padded with '='.
DEEPSPEED_API std::string encode_base64(std::string_view bytes);

}  // namespace deepspeed
