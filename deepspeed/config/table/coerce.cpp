#include "deepspeed/config/table/coerce.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "deepspeed/base/text.h"

namespace deepspeed::config {
namespace {

std::optional<int64_t> whole(double value) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (!(value >= -kTwoTo63 && value < kTwoTo63) || std::floor(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

/// Returns the number that is the whole text; nothing if the text is anything else.
template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [reached, status] = std::from_chars(text.data(), end, number);
  if (text.empty() || status != std::errc() || reached != end) return std::nullopt;
  return number;
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::optional<bool> word_as_bool(const std::string& given) {
  const std::string word = lowercase(given);
  constexpr std::array kTrue = {"true", "yes", "on", "t", "y", "1"};
  constexpr std::array kFalse = {"false", "no", "off", "f", "n", "0"};
  if (std::find(kTrue.begin(), kTrue.end(), word) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), word) != kFalse.end()) return false;
  return std::nullopt;
}

}  // namespace

std::optional<bool> as_bool(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return word_as_bool(value.get<std::string>());
  if (value.is_number() && value == 0) return false;
  if (value.is_number() && value == 1) return true;
  return std::nullopt;
}

std::optional<int64_t> as_int(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) return whole(value.get<double>());
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  if (const auto number = number_in<int64_t>(text)) return number;
  const auto number = number_in<double>(text);
  return number ? whole(*number) : std::nullopt;
}

std::optional<double> as_float(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number()) return finite(value.get<double>());
  if (!value.is_string()) return std::nullopt;
  const auto number = number_in<double>(value.get<std::string>());
  return number ? finite(*number) : std::nullopt;
}

}  // namespace deepspeed::config
