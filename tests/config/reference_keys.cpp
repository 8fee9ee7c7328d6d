#include "tests/config/reference_keys.h"

#include <cctype>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"

#include "tests/places/places.h"

namespace deepspeed::config {
namespace {

/// A range's ends, as text: ">=1", ">0", "[0..1]", "(0..1)".
struct Ends {
  std::optional<double> minimum;
  std::optional<double> maximum;
  bool open = false;
};

Ends ends_of(const std::string& range) {
  if (range.empty()) return {};
  if (range[0] == '>') {
    const bool open = range[1] != '=';
    return {std::stod(range.substr(open ? 1 : 2)), std::nullopt, open};
  }
  const size_t dots = range.find("..");
  return {std::stod(range.substr(1)), std::stod(range.substr(dots + 2)), range[0] == '('};
}

std::string range_words(const std::string& range) {
  const Ends ends = ends_of(range);
  if (!ends.minimum) return "";
  if (!ends.maximum) return message(ends.open ? " above " : " of at least ", *ends.minimum);
  return ends.open ? message(" strictly between ", *ends.minimum, " and ", *ends.maximum)
                   : message(" from ", *ends.minimum, " to ", *ends.maximum);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

void append_range(const ReferenceKey& key, bool whole, std::vector<Json>& accepted,
                  std::vector<Json>& refused) {
  const Ends ends = ends_of(key.range);
  const double step = whole ? 1.0 : 1.0 / 64;
  const auto number = [&](double value) { return whole ? Json(static_cast<int64_t>(value)) : Json(value); };
  if (ends.minimum) {
    accepted.push_back(number(*ends.minimum + (ends.open ? step : 0)));
    refused.push_back(number(*ends.minimum - (ends.open ? 0 : step)));
  }
  if (ends.maximum) {
    accepted.push_back(number(*ends.maximum - (ends.open ? step : 0)));
    refused.push_back(number(*ends.maximum + (ends.open ? 0 : step)));
  }
  if (!ends.maximum && whole) accepted.push_back(1000);
  if (!ends.maximum && !whole) accepted.push_back(1e30);
  if (!ends.minimum) accepted.push_back(-7);
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

struct Values {
  std::vector<Json> accepted, refused;
};

Values values_of(const ReferenceKey& key) {
  const Json object = Json::object(), list = Json::array();
  Values v;
  if (key.type == "bool") {
    v = {{true, false, 0, 1, 1.0, "true", "NO", "on", "f", "1"}, {2, -1, 0.5, "maybe", "", list, object}};
  } else if (key.type == "strictbool") {
    v = {{true, false}, {1, "true", list}};
  } else if (key.type == "int") {
    v = {{"3", 2.0, 1}, {1.5, "x", "", "1.5", 1e30, 18446744073709551615u, list, object}};
    append_range(key, true, v.accepted, v.refused);
  } else if (key.type == "float") {
    v = {{}, {"x", "", "nan", "inf", list, object}};
    append_range(key, false, v.accepted, v.refused);
    v.accepted.push_back("0.5");
  } else if (key.type == "str") {
    v = {{"text", ""}, {1, true, list, object}};
  } else if (key.type == "nonempty") {
    v = {{"text"}, {"", 1, list}};
  } else if (key.type == "enum") {
    v = {{}, {"no_such_choice", "", 1, true, list, object}};
    for (const std::string& choice : key.choices) {
      v.accepted.push_back(choice);
      v.accepted.push_back(upper(choice));
    }
  } else if (key.type == "enums") {
    v = {{list, key.choices}, {{"no_such_choice"}, {1}, 7, object}};
  } else if (key.type == "strs") {
    v = {{list, {"a", "b"}}, {{1}, {nullptr}, 7, object}};
  } else if (key.type == "ints") {
    v = {{list, {1, 2}, {"3"}}, {{1.5}, {"x"}, {nullptr}, 7, object}};
    if (!key.range.empty()) v.refused.push_back({0});
  } else if (key.type == "dict") {
    v = {{object, {{"a", 1}}}, {1, "x", list}};
  } else if (key.type == "onlynull") {
    v = {{nullptr}, {1, "x", 0.5}};
  } else if (key.type == "any") {
    v = {{1, "x", list, object}, {}};
  }
  return v;
}

/// Splits "int>=1?", "enum(a,b)?", "float(0..1)", "int!bool" into a key's fields.
void parse_type(std::string text, ReferenceKey& key) {
  if (text.ends_with("!bool")) {
    key.no_truth_value = true;
    text.resize(text.size() - 5);
  }
  if (text.ends_with('?')) {
    key.nullable = true;
    text.pop_back();
  }
  const size_t name_end = text.find_first_of(">[(");
  key.type = text.substr(0, name_end);
  if (name_end == std::string::npos) return;
  const std::string rest = text.substr(name_end);
  if (!key.type.starts_with("enum")) {
    key.range = rest;
    return;
  }
  std::istringstream choices(rest.substr(1, rest.size() - 2));
  for (std::string choice; std::getline(choices, choice, ',');) key.choices.push_back(choice);
}

ReferenceSection parse_section(const std::string& line) {
  ReferenceSection section;
  section.path = line.substr(1, line.find(']') - 1);
  const std::string flags = line.substr(line.find(']') + 1);
  const auto has = [&](const char* flag) { return flags.find(flag) != std::string::npos; };
  section.auto_is_default = has("auto");
  section.nullable = has("null");
  section.open = has("open");
  section.absent = has("absent");
  return section;
}

ReferenceKey parse_key(const std::string& line, const ReferenceSection& section) {
  ReferenceKey key;
  key.section = section;
  std::istringstream words(line);
  std::string type, rest;
  words >> key.key >> type;
  std::getline(words >> std::ws, rest);
  parse_type(type, key);
  key.required = rest == "required";
  if (rest != "required" && rest != "unprinted") key.default_value = Json::parse(rest);
  if (key.default_value && key.default_value->is_null() && (key.type == "any" || key.type == "onlynull"))
    key.nullable = true;
  return key;
}

}  // namespace

std::string ReferenceKey::words() const {
  std::string text;
  if (type == "bool") text = "true or false";
  if (type == "strictbool") text = "true or false, not a word or a number";
  if (type == "int") text = "a whole number" + range_words(range);
  if (type == "float") text = "a number" + range_words(range);
  if (type == "str") text = "a string";
  if (type == "nonempty") text = "a string, which is not empty";
  if (type == "enum") text = "one of " + joined(choices);
  if (type == "enums") text = "a list of " + joined(choices);
  if (type == "strs") text = "a list of strings";
  if (type == "ints") text = "a list of whole numbers" + range_words(range);
  if (type == "dict") text = "an object";
  if (type == "onlynull") return "null and nothing else";
  if (no_truth_value) text += ", not true or false";
  if (key == "legacy_stage1") text = "false";
  return nullable ? text + ", or null" : text;
}

std::vector<Json> ReferenceKey::accepted() const {
  std::vector<Json> values = values_of(*this).accepted;
  if (nullable) values.emplace_back(nullptr);
  if (key == "legacy_stage1") values = {false, 0, "off"};
  return values;
}

std::vector<Json> ReferenceKey::refused() const {
  std::vector<Json> values = values_of(*this).refused;
  if (!nullable && type != "any") values.emplace_back(nullptr);
  if (no_truth_value) values.emplace_back(true);
  if (key == "legacy_stage1") values = {true, 1, "on", 2};
  // A list of one may be written without its brackets there.
  const bool takes_auto = section.auto_is_default || type == "str" || type == "nonempty" || type == "any";
  const bool is_choice = std::find(choices.begin(), choices.end(), "auto") != choices.end();
  if (!takes_auto && !is_choice) values.emplace_back("auto");
  return values;
}

static Reference read_reference() {
  Reference reference;
  std::ifstream file(testing::source_folder() / "tests/config/reference_keys.txt");
  EXPECT_TRUE(file.good());
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      reference.sections.push_back(parse_section(line));
    } else {
      reference.keys.push_back(parse_key(line, reference.sections.back()));
    }
  }
  return reference;
}

const Reference& reference() {
  static const Reference read = read_reference();
  return read;
}

}  // namespace deepspeed::config
