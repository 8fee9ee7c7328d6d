// Reads and writes YAML through yaml-cpp, whose nodes are text. What a plain scalar means is decided here, by
// the rules of YAML 1.1 as PyYAML has them (https://yaml.org/type/), since files are shared with Python.
#include "deepspeed/yaml/yaml_file.h"

#include <cmath>
#include <limits>
#include <optional>
#include <regex>
#include <utility>

#include <yaml-cpp/yaml.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed {
namespace {

std::string without_underscores(std::string text) {
  std::erase(text, '_');
  return text;
}

/// Returns the value of digits in base 60, such as 1:30 or 1:30.5.
double base_60(const std::string& text) {
  double value = 0;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(':', begin), text.size());
    value = value * 60 + std::stod(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return value;
}

/// Returns the whole number that a plain scalar means, or nothing. Numbers beyond 64 bits are not known.
std::optional<Json> as_yaml_int(const std::string& plain) {
  static const std::regex pattern(
      "([-+]?)(0b([01_]+)|0x([0-9a-fA-F_]+)|0([0-7_]+)|(0|[1-9][0-9_]*)|([1-9][0-9_]*(:[0-5]?[0-9])+))");
  std::smatch match;
  if (!std::regex_match(plain, match, pattern)) return {};
  const bool negative = match[1] == "-";
  if (match[7].matched) {
    const double value = base_60(without_underscores(match[7]));
    return Json(static_cast<int64_t>(negative ? -value : value));
  }
  const int base = match[3].matched ? 2 : match[4].matched ? 16 : match[5].matched ? 8 : 10;
  std::string digits;
  for (const int group : {3, 4, 5, 6}) digits += match[group].matched ? std::string(match[group]) : "";
  digits = without_underscores(std::move(digits));
  if (digits.empty()) digits = "0";
  errno = 0;
  const auto value = std::strtoll(((negative ? "-" : "") + digits).c_str(), nullptr, base);
  if (errno == 0) return Json(static_cast<int64_t>(value));
  return Json(std::strtod((negative ? "-" + digits : digits).c_str(), nullptr));
}

std::optional<Json> as_yaml_float(const std::string& plain) {
  static const std::regex decimal(
      R"([-+]?([0-9][0-9_]*)\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?)");
  static const std::regex sexagesimal(R"(([-+]?)([0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*))");
  static const std::regex infinite(R"(([-+]?)\.(inf|Inf|INF))");
  std::smatch match;
  if (std::regex_match(plain, decimal)) return Json(std::stod(without_underscores(plain)));
  if (std::regex_match(plain, match, sexagesimal)) {
    const double value = base_60(without_underscores(match[2]));
    return Json(match[1] == "-" ? -value : value);
  }
  if (std::regex_match(plain, match, infinite)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return Json(match[1] == "-" ? -infinity : infinity);
  }
  if (plain == ".nan" || plain == ".NaN" || plain == ".NAN")
    return Json(std::numeric_limits<double>::quiet_NaN());
  return {};
}

std::optional<bool> as_yaml_bool(const std::string& plain) {
  static const std::regex yes("yes|Yes|YES|true|True|TRUE|on|On|ON");
  static const std::regex no("no|No|NO|false|False|FALSE|off|Off|OFF");
  if (std::regex_match(plain, yes)) return true;
  if (std::regex_match(plain, no)) return false;
  return {};
}

bool is_yaml_null(const std::string& plain) {
  return plain.empty() || plain == "~" || plain == "null" || plain == "Null" || plain == "NULL";
}

/// Returns the value that a plain scalar means.
Json resolve_plain(const std::string& plain) {
  // No rule matches a longer text, and std::regex recurses once a character.
  if (plain.size() > 400) return plain;
  if (is_yaml_null(plain)) return nullptr;
  if (const auto truth = as_yaml_bool(plain)) return *truth;
  if (const auto number = as_yaml_int(plain)) return *number;
  if (const auto number = as_yaml_float(plain)) return *number;
  return plain;
}

/// Turns yaml-cpp's nodes into JSON values.
class Converter {
 public:
  explicit Converter(YamlDocument& document) : document_(document) {}

  Json convert(const YAML::Node& node, const std::string& path, size_t depth) {
    if (depth > kMaxJsonDepth)
      fail(node, path, "nested too deeply, expected at most ", kMaxJsonDepth, " levels");
    if (++values_ > kMaxJsonBytes) fail(node, path, "the anchors of this file unfold to too many values");
    if (!path.empty()) document_.lines.emplace(path, line_of(node));
    switch (node.Type()) {
      case YAML::NodeType::Map:
        require_tag(node, path, "map");
        return map(node, path, depth);
      case YAML::NodeType::Sequence:
        require_tag(node, path, "seq");
        return sequence(node, path, depth);
      case YAML::NodeType::Scalar:
        return scalar(node, path);
      default:
        return nullptr;
    }
  }

 private:
  static size_t line_of(const YAML::Node& node) {
    return static_cast<size_t>(std::max(node.Mark().line, 0)) + 1;
  }

  template <class... Parts>
  [[noreturn]] void fail(const YAML::Node& node, const std::string& path, const Parts&... parts) const {
    const std::string shown = path.size() > 120 ? path.substr(0, 120) + "..." : path;
    raise<ConfigError>(document_.source, " line ", line_of(node), ": ", shown.empty() ? "" : shown + ": ",
                       parts...);
  }

  /// Returns the tag's last part: "int" of "tag:yaml.org,2002:int", "?" for a plain scalar, "!" for a quoted one.
  static std::string short_tag(const YAML::Node& node) {
    static const std::string kBasic = "tag:yaml.org,2002:";
    const std::string& tag = node.Tag();
    return tag.starts_with(kBasic) ? tag.substr(kBasic.size()) : tag;
  }

  void require_tag(const YAML::Node& node, const std::string& path, const char* basic) const {
    const std::string tag = short_tag(node);
    if (tag.empty() || tag == "?" || tag == "!" || tag == basic) return;
    fail(node, path, "the tag ", json_excerpt(tag), " is not read, expected no tag");
  }

  Json scalar(const YAML::Node& node, const std::string& path) const {
    const std::string tag = short_tag(node);
    const std::string& text = node.Scalar();
    if (tag == "?" || tag.empty()) return resolve_plain(text);
    if (tag == "!" || tag == "str") return text;
    Json value = resolve_plain(text);
    const bool fits = (tag == "null" && value.is_null()) || (tag == "bool" && value.is_boolean()) ||
                      (tag == "int" && value.is_number_integer()) || (tag == "float" && value.is_number());
    if (!fits) fail(node, path, "the tag ", json_excerpt(tag), " does not fit ", json_excerpt(text));
    return tag == "float" ? Json(value.get<double>()) : value;
  }

  Json sequence(const YAML::Node& node, const std::string& path, size_t depth) {
    Json values = Json::array();
    for (const auto& item : node)
      values.push_back(convert(item, path + "[" + std::to_string(values.size()) + "]", depth + 1));
    return values;
  }

  Json map(const YAML::Node& node, const std::string& path, size_t depth) {
    Json values = Json::object();
    Json merged = Json::object();
    for (const auto& item : node) {
      if (!item.first.IsScalar() && !item.first.IsNull())
        fail(item.first, path, "a key is no text, expected one");
      const std::string key = item.first.IsNull() ? "null" : item.first.Scalar();
      const std::string at = path.empty() ? path_part(key) : path + "." + path_part(key);
      if (key == "<<" && short_tag(item.first) == "?") {
        merge(merged, item.second, path, depth);
      } else if (values.contains(key)) {
        fail(item.first, at, "the key is given twice, expected once");
      } else {
        values[key] = convert(item.second, at, depth + 1);
      }
    }
    for (auto& [key, value] : merged.items()) {
      if (!values.contains(key)) values[key] = std::move(value);
    }
    return values;
  }

  /// Adds the keys of a map, or of several, that a merge key names. Earlier maps win.
  void merge(Json& merged, const YAML::Node& node, const std::string& path, size_t depth) {
    if (node.IsSequence()) {
      for (const auto& item : node) merge(merged, item, path, depth + 1);
      return;
    }
    if (!node.IsMap()) fail(node, path, "the merge key << takes a map, or a list of maps");
    const Json values = convert(node, path, depth + 1);
    for (const auto& [key, value] : values.items()) {
      if (!merged.contains(key)) merged[key] = value;
    }
  }

  YamlDocument& document_;
  size_t values_ = 0;
};

/// Returns the text of a finite or infinite number as YAML 1.1 reads it: with a point, and a signed exponent.
std::string yaml_number(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  std::string text = Json(value).dump();
  if (const size_t exponent = text.find('e');
      exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}

/// Returns whether PyYAML reads the plain scalar as text. It makes dates, and refuses `=`.
bool stays_text(const std::string& plain) {
  static const std::regex date("[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*");
  if (plain == "<<" || plain == "=" || !resolve_plain(plain).is_string()) return false;
  return plain.size() > 40 || !std::regex_match(plain, date);
}

void emit(YAML::Emitter& out, const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      out << YAML::BeginMap;
      for (const auto& [key, item] : value.items()) {
        out << YAML::Key;
        emit(out, key);
        out << YAML::Value;
        emit(out, item);
      }
      out << YAML::EndMap;
      return;
    case Json::value_t::array:
      out << YAML::BeginSeq;
      for (const Json& item : value) emit(out, item);
      out << YAML::EndSeq;
      return;
    case Json::value_t::string: {
      const auto text = value.get<std::string>();
      if (text.find('\n') != std::string::npos)
        out << YAML::DoubleQuoted << text;
      else if (!stays_text(text))
        out << YAML::SingleQuoted << text;
      else
        out << text;
      return;
    }
    case Json::value_t::boolean:
      out << value.get<bool>();
      return;
    case Json::value_t::number_float:
      out << yaml_number(value.get<double>());
      return;
    case Json::value_t::null:
      out << YAML::Null;
      return;
    default:
      out << value.dump();
  }
}

}  // namespace

std::string YamlDocument::place_of(const std::string& path) const {
  for (std::string at = path; !at.empty();) {
    if (const auto found = lines.find(at); found != lines.end())
      return message(source, " line ", found->second);
    const size_t end = at.find_last_of(".[");
    at.resize(end == std::string::npos ? 0 : end);
  }
  return source;
}

YamlDocument parse_yaml(const std::string& text, const std::string& source) {
  if (text.size() > kMaxJsonBytes)
    raise<ConfigError>(source, ": got more than ", kMaxJsonBytes, " bytes, expected a smaller text");
  YamlDocument document{nullptr, source, {}};
  try {
    const std::vector<YAML::Node> found = YAML::LoadAll(text);
    if (found.size() > 1) raise<ConfigError>(source, ": got ", found.size(), " documents, expected one");
    if (!found.empty()) document.value = Converter(document).convert(found[0], "", 0);
  } catch (const YAML::Exception& error) {
    raise<ConfigError>(source, " line ", error.mark.line + 1, " column ", error.mark.column + 1, ": ",
                       error.msg);
  }
  return document;
}

YamlDocument read_yaml_file(const std::filesystem::path& path) {
  return parse_yaml(read_text_file(path, kMaxJsonBytes, "YAML file"), path.string());
}

std::string to_yaml(const Json& value) {
  YAML::Emitter out;
  emit(out, value);
  return std::string(out.c_str()) + "\n";
}

}  // namespace deepspeed
