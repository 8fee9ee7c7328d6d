// Small transformations of text.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
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

/// Removes `prefix` from the front of `text`. Returns false, with `text` unchanged, if it is not there.
inline bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Removes a number of 0 or more from the front of `text` into `number`. Returns false, with `text`
/// unchanged, if none is there.
inline bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

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
