// Reads hand-written JSON and reports the place of each fault.
//
// parse_json() limits the length, overwrites comments and trailing commas with spaces, which keeps every line
// and column, and runs nlohmann's event parser over the rest. The events build the value and know which key
// is being read. A duplicate key, a number that no double holds, or too deep nesting thus becomes a
// ConfigError with source, line, column and key.
#include "deepspeed/base/json_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <iterator>
#include <unordered_set>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Returns the offset just after the string whose opening quote is at `begin`.
size_t end_of_string(const std::string& text, size_t begin) {
  size_t at = begin + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

/// Returns the offset just after the comment at `begin`, or `begin` if there is none. Throws ConfigError if
/// it has no end.
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

/// Iterates over a text and records how far it was read.
class TrackedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  TrackedIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  TrackedIterator operator++(int) {
    TrackedIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const TrackedIterator& a, const TrackedIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const TrackedIterator& a, const TrackedIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Builds the value from the parser's events and turns each fault into a ConfigError.
class Builder {
 public:
  Builder(const std::string& text, const std::string& source)
      : text_(text), source_(source), reached_(text.data()) {}

  Json build() {
    const char* const begin = text_.data();
    const char* const end = begin + text_.size();
    Json::sax_parse(TrackedIterator(begin, &reached_), TrackedIterator(end, &reached_), this);
    return std::move(root_);
  }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { fail("binary data is not JSON"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    level.key = name;
    if (!level.keys.insert(name).second) fail("the key ", path(), " is given twice, expected once");
    return true;
  }

  bool parse_error(size_t offset, const std::string& token, const nlohmann::detail::exception& error) {
    reached_ = text_.data() + std::min(offset, text_.size());
    if (error.id == 406)
      fail(path(), ": got ", token.substr(0, 40), ", expected a number within the range of a double");
    if (const char* word = word_of_python(offset)) {
      fail(path(), ": got ", word,
           ", which JSON does not have, expected a number, or null where the key takes it");
    }
    std::string what = error.what();
    if (const size_t start = what.find(": "); start != std::string::npos) what.erase(0, start + 2);
    fail(what.substr(0, 200));
  }

 private:
  struct Level {
    Json* value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const size_t consumed = static_cast<size_t>(reached_ - text_.data());
    const auto [line, column] = position_in(text_, consumed == 0 ? 0 : consumed - 1);
    raise<ConfigError>(source_, " line ", line, " column ", column, ": ", parts...);
  }

  /// Returns "Infinity" or "NaN", which Python writes, if the parser stopped after its first letter at
  /// `offset`; otherwise null.
  const char* word_of_python(size_t offset) const {
    for (const char* word : {"Infinity", "NaN"}) {
      if (offset > 0 && text_.compare(offset - 1, std::strlen(word), word) == 0) return word;
    }
    return nullptr;
  }

  std::string path() const {
    std::string joined;
    for (const Level& level : levels_) {
      if (!level.key.empty()) joined += (joined.empty() ? "" : ".") + path_part(level.key);
    }
    return joined.empty() ? "the value" : joined;
  }

  Json* insert(Json value) {
    if (levels_.empty()) return &(root_ = std::move(value));
    Level& level = levels_.back();
    if (level.value->is_array()) return &level.value->emplace_back(std::move(value));
    // key() has rejected duplicates, so there is no need to search for the key.
    auto& members = level.value->get_ref<Json::object_t&>();
    members.emplace_back(level.key, std::move(value));
    return &members.back().second;
  }

  bool add(Json value) {
    insert(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (levels_.size() >= kMaxJsonDepth)
      fail("nested too deeply, expected at most ", kMaxJsonDepth, " levels");
    levels_.push_back({insert(std::move(value)), "", {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::string& text_;
  const std::string& source_;
  const char* reached_;
  Json root_;
  std::vector<Level> levels_;
};

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
  size_t comma = std::string::npos;  // a comma after a value, with nothing after it so far
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

std::string path_part(const std::string& key) {
  constexpr size_t kLongest = 80;
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  if (!key.empty() && key.size() <= kLongest && std::all_of(key.begin(), key.end(), plain)) return key;
  return json_excerpt(Json(key));
}

std::string json_excerpt(const Json& value) {
  constexpr size_t kLongest = 80;
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

Json parse_json(const std::string& text, const std::string& source, size_t max_bytes) {
  if (text.size() > max_bytes) {
    raise<ConfigError>(source, ": got more than ", max_bytes, " bytes, expected a smaller text");
  }
  return Builder(blank_comments(text, source), source).build();
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_text_file(path, kMaxJsonBytes, "JSON file"), path.string());
}

}  // namespace deepspeed
