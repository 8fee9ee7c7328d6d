// A section checks its keys when it is made, before any value is read: a misspelled key is named as such, not
// as the absence of the key that was meant. Values are then read one by one.
#include "deepspeed/trial/experiment/yaml_section.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "deepspeed/base/json_file.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/trial/experiment/hyperparameter.h"
#include "deepspeed/trial/experiment/refused_keys.h"

namespace deepspeed::trial {
namespace {

constexpr const char* kLengthForms =
    "a whole number of batches, or {batches: N}, {records: N} or {epochs: N}";
constexpr const char* kText = "text; quote it if it looks like a number";
constexpr size_t kMostNearKeys = 3;

std::string limits_text(int64_t minimum, int64_t maximum) {
  if (maximum >= kMaxWhole) return message("a whole number of ", minimum, " or more");
  return message("a whole number from ", minimum, " to ", maximum);
}

/// Returns the whole number that a value is, or nothing. Those beyond kMaxWhole are not exact as a double.
std::optional<int64_t> whole_of(const Json& value) {
  const auto number = number_of(value);
  if (!number || std::trunc(*number) != *number || std::abs(*number) > static_cast<double>(kMaxWhole))
    return {};
  const int64_t whole = value.is_number_integer() ? value.get<int64_t>() : static_cast<int64_t>(*number);
  return std::abs(whole) <= kMaxWhole ? std::optional(whole) : std::nullopt;
}

}  // namespace

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return {};
  static const std::regex exponent_form(R"([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+)");
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > 40 || !std::regex_match(text, exponent_form)) return {};
  double number = 0;
  const size_t begin = text[0] == '+' ? 1 : 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc()) return {};
  return number;
}

YamlSection::YamlSection(const YamlDocument& document, std::string path, const Json& value,
                         const std::vector<std::string>& known)
    : document_(&document), path_(std::move(path)), value_(&value) {
  if (!value.is_object()) {
    const std::string got = value.is_null() ? "nothing" : json_excerpt(value);
    raise<ConfigError>(document.place_of(path_), ": ", path_.empty() ? "" : path_ + ": ", "got ", got,
                       ", expected a map with keys such as ", known.at(0));
  }
  for (const auto& [key, item] : value.items()) {
    if (const std::string refusal = refusal_of(path_of(key)); !refusal.empty()) fail(key, refusal);
  }
  for (const auto& [key, item] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail(key, "unknown key", config::did_you_mean(config::nearest_keys(key, known, kMostNearKeys)));
  }
}

const Json* YamlSection::find(const std::string& key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool YamlSection::flag(const std::string& key, bool absent) const {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail_value(key, "true or false");
  return value->get<bool>();
}

std::string YamlSection::text(const std::string& key, const std::string& absent) const {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) fail_value(key, kText);
  return value->get<std::string>();
}

std::vector<std::string> YamlSection::texts(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  std::vector<std::string> found;
  if (!value->is_array()) fail_value(key, "a list of texts");
  for (const Json& item : *value) {
    if (!item.is_string()) {
      fail_at(message(path_of(key), "[", found.size(), "]"), "got ", json_excerpt(item), ", expected ",
              kText);
    }
    found.push_back(item.get<std::string>());
  }
  return found;
}

std::optional<int64_t> YamlSection::whole(const std::string& key, int64_t minimum, int64_t maximum) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const auto found = whole_of(*value);
  if (!found || *found < minimum || *found > maximum) fail_value(key, limits_text(minimum, maximum));
  return found;
}

std::optional<double> YamlSection::number(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const auto number = number_of(*value);
  if (!number || !std::isfinite(*number)) fail_value(key, "a finite number");
  return number;
}

std::optional<Length> YamlSection::length(const std::string& key, int64_t minimum) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) {
    if (!number_of(*value)) fail_value(key, kLengthForms);
    return Length{*whole(key, minimum), LengthUnit::kBatches};
  }
  if (value->size() != 1) fail_value(key, kLengthForms);
  const YamlSection units(*document_, path_of(key), *value, {"batches", "records", "epochs"});
  for (const LengthUnit unit : {LengthUnit::kBatches, LengthUnit::kRecords, LengthUnit::kEpochs}) {
    if (const auto amount = units.whole(name_of(unit), minimum)) return Length{*amount, unit};
  }
  fail_value(key, kLengthForms);
}

std::optional<size_t> YamlSection::choice(const std::string& key,
                                          const std::vector<std::string>& names) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  const auto found =
      std::find(names.begin(), names.end(), value->is_string() ? value->get<std::string>() : "");
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string expected;
  for (const std::string& name : names)
    expected += (expected.empty() ? "" : name == names.back() ? " or " : ", ") + name;
  fail_value(key, expected);
}

std::optional<YamlSection> YamlSection::section(const std::string& key,
                                                const std::vector<std::string>& known) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  return YamlSection(*document_, path_of(key), *value, known);
}

std::string YamlSection::path_of(const std::string& key) const {
  return path_.empty() ? path_part(key) : path_ + "." + path_part(key);
}

void YamlSection::fail_value(const std::string& key, const std::string& expected) const {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "missing, expected ", expected);
  fail(key, "got ", json_excerpt(*value), ", expected ", expected);
}

}  // namespace deepspeed::trial
