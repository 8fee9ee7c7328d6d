// Whole numbers and comma lists for the launcher's small grammars.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace deepspeed::launcher {

/// Reads a number that has only digits. Returns nothing for a sign, a space, no text, or a number beyond int.
inline std::optional<int> parse_whole_number(std::string_view text) {
  int value = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return std::nullopt;
  return value;
}

/// Splits a text at separators and keeps empty parts. "a,,b" gives {"a", "", "b"} and "" gives {""}.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// Joins the parts with `separator` between them.
template <class Part>
std::string join(const std::vector<Part>& parts, std::string_view separator) {
  std::string text;
  for (const Part& part : parts) {
    if (!text.empty()) text += separator;
    if constexpr (std::is_arithmetic_v<Part>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  }
  return text;
}

}  // namespace deepspeed::launcher
