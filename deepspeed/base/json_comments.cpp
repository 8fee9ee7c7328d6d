#include "deepspeed/base/json_comments.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Returns the offset just after the string that begins at `begin` (its opening quote).
size_t end_of_string(const std::string& text, size_t begin) {
  size_t at = begin + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

/// Returns the offset just after the comment that begins at `begin`, or `begin` where none does.
size_t end_of_comment(const std::string& text, size_t begin, const std::string& source) {
  if (text[begin] == '#' || text.compare(begin, 2, "//") == 0) {
    return std::min(text.find('\n', begin), text.size());
  }
  if (text.compare(begin, 2, "/*") != 0) return begin;
  const size_t close = text.find("*/", begin + 2);
  if (close == std::string::npos) {
    const auto [line, column] = position_in(text, begin);
    raise<ConfigError>(source, " line ", line, " column ", column, ": the comment has no end, expected */");
  }
  return close + 2;
}

void blank(std::string& text, size_t begin, size_t end) {
  for (size_t at = begin; at < end; ++at) {
    if (text[at] != '\n') text[at] = ' ';
  }
}

}  // namespace

TextPosition position_in(const std::string& text, size_t offset) {
  TextPosition position;
  for (size_t at = 0; at < std::min(offset, text.size()); ++at) {
    const bool new_line = text[at] == '\n';
    position.line += new_line ? 1 : 0;
    position.column = new_line ? 1 : position.column + 1;
  }
  return position;
}

std::string blank_comments(std::string text, const std::string& source) {
  size_t comma = std::string::npos;  // a comma with a value before it and nothing after it so far
  char previous = '\0';              // the last byte that is neither white space nor comment
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (is_space(c)) {
      ++at;
      continue;
    }
    if (const size_t end = end_of_comment(text, at, source); end != at) {
      blank(text, at, end);
      at = end;
      continue;
    }
    if ((c == '}' || c == ']') && comma != std::string::npos) text[comma] = ' ';
    const bool after_value = previous != '\0' && previous != ',' && previous != '[' && previous != '{';
    comma = c == ',' && after_value ? at : std::string::npos;
    previous = c;
    at = c == '"' ? end_of_string(text, at) : at + 1;
  }
  return text;
}

}  // namespace deepspeed
