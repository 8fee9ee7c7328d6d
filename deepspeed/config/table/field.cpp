// Builds the entries of the tables.
//
// make_field() fills in key, kind, default and meaning. Then each option changes one property, in the order
// in which the table lists them (a later one of the same kind replaces an earlier one). expected_value()
// describes kind, range, choices and conditions in the words of errors and help.
#include "deepspeed/config/table/field.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "deepspeed/base/message.h"

namespace deepspeed::config {
namespace {

std::string kind_text(const Field& field) {
  switch (field.kind) {
    case Kind::kBool:
      if (field.accepts && !field.accepts(true)) return "false";
      return "true or false";
    case Kind::kInt:
      return "a whole number";
    case Kind::kFloat:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kStringList:
      return "a list of strings";
    case Kind::kIntList:
      return "a list of whole numbers";
    case Kind::kObject:
    case Kind::kSection:
      return "an object";
    case Kind::kAny:
      return "any value";
  }
  return "";
}

std::string range_text(const Range& range) {
  if (!range.minimum) return "";
  if (!range.maximum) return message(range.open ? " above " : " of at least ", *range.minimum);
  return message(range.open ? " strictly between " : " from ", *range.minimum, range.open ? " and " : " to ",
                 *range.maximum);
}

}  // namespace

Field make_field(Kind kind, std::string key, Json default_value, std::string meaning,
                 std::initializer_list<Option> options) {
  Field field;
  field.key = std::move(key);
  field.kind = kind;
  field.nullable = default_value.is_null() && kind != Kind::kSection;
  field.default_value = std::move(default_value);
  field.meaning = std::move(meaning);
  for (const Option& option : options) option(field);
  return field;
}

Field boolean(std::string key, Json default_value, std::string meaning,
              std::initializer_list<Option> options) {
  return make_field(Kind::kBool, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field integer(std::string key, Json default_value, std::string meaning,
              std::initializer_list<Option> options) {
  return make_field(Kind::kInt, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field number(std::string key, Json default_value, std::string meaning,
             std::initializer_list<Option> options) {
  return make_field(Kind::kFloat, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field text(std::string key, Json default_value, std::string meaning, std::initializer_list<Option> options) {
  return make_field(Kind::kString, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field integers(std::string key, Json default_value, std::string meaning,
               std::initializer_list<Option> options) {
  return make_field(Kind::kIntList, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field texts(std::string key, Json default_value, std::string meaning, std::initializer_list<Option> options) {
  return make_field(Kind::kStringList, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field object(std::string key, Json default_value, std::string meaning,
             std::initializer_list<Option> options) {
  return make_field(Kind::kObject, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field any(std::string key, Json default_value, std::string meaning, std::initializer_list<Option> options) {
  return make_field(Kind::kAny, std::move(key), std::move(default_value), std::move(meaning), options);
}
Field section(std::string key, std::string meaning, std::vector<Field> children,
              std::initializer_list<Option> options) {
  Field field = make_field(Kind::kSection, std::move(key), nullptr, std::move(meaning), options);
  field.children = std::move(children);
  return field;
}

Json with_defaults(const std::vector<Field>& fields, const Json& values) {
  Json whole = Json::object();
  for (const Field& field : fields) {
    const auto found = values.find(field.key);
    const bool is_given = found != values.end() && !found->is_null();
    if (field.kind != Kind::kSection) {
      whole[field.key] = found != values.end() ? *found : field.default_value;
    } else if (is_given || !field.nullable) {
      whole[field.key] = with_defaults(field.children, is_given ? *found : Json::object());
    }
  }
  return whole;
}

Option at_least(double minimum) {
  return [=](Field& field) { field.range = {minimum, std::nullopt, false}; };
}
Option above(double minimum) {
  return [=](Field& field) { field.range = {minimum, std::nullopt, true}; };
}
Option between(double minimum, double maximum) {
  return [=](Field& field) { field.range = {minimum, maximum, false}; };
}
Option strictly_between(double minimum, double maximum) {
  return [=](Field& field) { field.range = {minimum, maximum, true}; };
}
Option in_familiar_words(std::string words) {
  return [=](Field& field) { field.familiar_words = words; };
}

Option one_of(std::vector<std::string> choices) {
  return [=](Field& field) { field.choices = choices; };
}
Option alias(std::string key) {
  return [=](Field& field) { field.aliases.push_back(key); };
}
Option or_null() {
  return [](Field& field) { field.nullable = true; };
}
Option infinity_is_null() {
  return normalized_by([](const Json& value) {
    return value == Json(std::numeric_limits<double>::infinity()) ? Json() : value;
  });
}
Option required() {
  return [](Field& field) { field.required = true; };
}
Option not_yet() {
  return [](Field& field) { field.supported_values.emplace(1, field.default_value); };
}
Option never(std::string why) {
  return [=](Field& field) {
    field.supported_values.emplace(1, field.default_value);
    field.refusal = why;
  };
}
Option only(std::vector<Json> values) {
  return [=](Field& field) { field.supported_values = values; };
}
Option without_effect(std::string why) {
  return [=](Field& field) { field.no_effect = why; };
}
Option effective_where(std::vector<std::string> paths, std::vector<Json> values, std::string why) {
  return [=](Field& field) {
    field.no_effect = why;
    field.effective_where = Condition{paths, values};
  };
}
Option effective_at_stage(int64_t stage) {
  return effective_where({"zero_optimization.stage"}, {stage},
                         "only stage " + std::to_string(stage) + " uses it");
}
Option keeps_unknown_keys() {
  return [](Field& field) { field.open = true; };
}
Option auto_means_default() {
  return [](Field& field) { field.auto_is_default = true; };
}
Option normalized_by(std::function<Json(const Json&)> normalize) {
  return [=](Field& field) { field.normalize = normalize; };
}
Option accepted_if(std::function<bool(const Json&)> accepts, std::string wording) {
  return [=](Field& field) {
    field.accepts = accepts;
    field.accepts_text = wording;
  };
}
Option deprecated(std::string replacement, std::function<Json(const Json&)> convert) {
  return [=](Field& field) { field.deprecation = Deprecation{replacement, convert}; };
}
Option no_truth_value() {
  return accepted_if([](const Json& value) { return !value.is_boolean(); }, "not true or false");
}
Option per_rank() {
  return [](Field& field) { field.per_rank = true; };
}
Option not_empty() {
  return accepted_if([](const Json& value) { return value != ""; }, "which is not empty");
}

std::string expected_value(const Field& field) {
  std::string expected = kind_text(field) + range_text(field.range);
  if (!field.choices.empty()) {
    expected = field.kind == Kind::kStringList ? "a list of" : "one of";
    for (const std::string& choice : field.choices)
      expected += (&choice == &field.choices[0] ? " " : ", ") + choice;
  }
  if (field.kind == Kind::kAny && !field.accepts_text.empty()) {
    expected = field.accepts_text;
  } else if (!field.accepts_text.empty()) {
    expected += ", " + field.accepts_text;
  }
  const bool any_value = field.kind == Kind::kAny && field.accepts_text.empty();
  const bool says_null = field.kind == Kind::kAny && field.accepts && field.accepts(nullptr);
  if (field.nullable && !any_value && !says_null) expected += ", or null";
  return expected;
}

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

bool answers_to(const Field& field, const std::string& key) {
  return field.key == key ||
         std::find(field.aliases.begin(), field.aliases.end(), key) != field.aliases.end();
}

const Field* find_field(const std::vector<Field>& fields, const std::string& key) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return answers_to(f, key); });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace deepspeed::config
