#include "deepspeed/accelerate/plugin/python_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace deepspeed::accelerate {
namespace {

/// Returns the shortest digits that give the number back. Python writes an exponent below 1e-4 and from 1e16.
std::string repr_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

/// Quotes as Python does: in double quotes only if the text holds single ones and no double ones. Bytes from
/// 0x80 on are taken as printable UTF-8.
std::string repr_of(const std::string& text) {
  const bool doubled = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += std::string{'\\', c};
    } else if (c == '\n' || c == '\t' || c == '\r') {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + quote;
}

}  // namespace

std::string python_repr(const Json& value) {
  std::string out;
  switch (value.type()) {
    case Json::value_t::object:
      for (const auto& [key, item] : value.items())
        out += (out.empty() ? "" : ", ") + repr_of(key) + ": " + python_repr(item);
      return "{" + out + "}";
    case Json::value_t::array:
      for (const Json& item : value) out += (out.empty() ? "" : ", ") + python_repr(item);
      return "[" + out + "]";
    case Json::value_t::string:
      return repr_of(value.get<std::string>());
    case Json::value_t::boolean:
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::number_float:
      return repr_of(value.get<double>());
    case Json::value_t::null:
      return "None";
    default:
      return value.dump();
  }
}

std::string python_str(const Json& value) {
  return value.is_string() ? value.get<std::string>() : python_repr(value);
}

}  // namespace deepspeed::accelerate
