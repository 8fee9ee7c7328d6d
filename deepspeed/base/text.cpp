#include "deepspeed/base/text.h"

#include <algorithm>
#include <cstdint>

namespace deepspeed {
namespace {

/// Returns the number of bytes of the UTF-8 character at `at`, or 0 if invalid.
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

constexpr std::string_view kBase64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Returns the six bits of a base64 character; nothing for any other.
std::optional<uint32_t> bits_of(char character) {
  if (character == '+' || character == '-') return 62;
  if (character == '/' || character == '_') return 63;
  const size_t found = kBase64Alphabet.find(character);
  if (found == std::string_view::npos) return std::nullopt;
  return static_cast<uint32_t>(found);
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

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 == 0 && text.ends_with('=')) {
    text.remove_suffix(1);
    if (text.ends_with('=')) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  uint32_t pending = 0;
  int num_bits = 0;
  for (const char character : text) {
    const auto bits = bits_of(character);
    if (!bits) return std::nullopt;
    pending = (pending << 6 | *bits) & 0xFFFFFF;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(pending >> num_bits & 0xFF));
  }
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  const auto character = [](uint32_t bits) {
    if (bits < kBase64Alphabet.size()) return kBase64Alphabet[bits];
    return bits == 62 ? '-' : '_';
  };
  std::string text;
  for (size_t begin = 0; begin < bytes.size(); begin += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - begin);
    for (size_t i = 0; i < 3; ++i) {
      const auto byte = i < count ? static_cast<unsigned char>(bytes[begin + i]) : 0;
      group = group << 8 | byte;
    }
    for (size_t i = 0; i < 4; ++i) {
      const auto bits = group >> (18 - 6 * i) & 0x3F;
      text.push_back(i <= count ? character(static_cast<uint32_t>(bits)) : '=');
    }
  }
  return text;
}

}  // namespace deepspeed
