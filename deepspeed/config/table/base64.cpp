#include "deepspeed/config/table/base64.h"

#include <algorithm>
#include <cstdint>

namespace deepspeed::config {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Returns the six bits of a character.
std::optional<uint32_t> bits_of(char character) {
  if (character == '+' || character == '-') return 62;
  if (character == '/' || character == '_') return 63;
  const size_t found = kAlphabet.find(character);
  if (found == std::string_view::npos) return std::nullopt;
  return static_cast<uint32_t>(found);
}

}  // namespace

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
    if (bits < kAlphabet.size()) return kAlphabet[bits];
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

}  // namespace deepspeed::config
