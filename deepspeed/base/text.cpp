#include "deepspeed/base/text.h"

#include <cstdint>

namespace deepspeed {
namespace {

/// Returns the length of the character at `at`; 0 if it is not valid UTF-8.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t index) { return index < text.size() ? uint8_t(text[index]) : uint8_t{0}; };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (size_t index = 1; index < length; ++index) {
    if ((byte(at + index) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(at + 1);
  const bool is_overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool is_no_character = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
  return is_overlong || is_no_character ? 0 : length;
}

}  // namespace

bool is_utf8(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string as_utf8(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) {
      result += '?';
      ++at;
    } else {
      result.append(text, at, length);
      at += length;
    }
  }
  return result;
}

}  // namespace deepspeed
