// Reads one section against its fields.
//
// read_section() visits the given keys. A key is found by its name or an alias; an unknown one is an error
// with the nearest names. Its value is normalised from older shapes, converted to the field's type, and
// checked against range, choices and conditions (canonical_value()). Sections are read recursively. Values
// are stored under the current name. A deprecated key stores what its replacement would have, and two keys
// for one value are an error. Required keys are checked last, so that an unknown key is reported before a
// missing one.
#include "deepspeed/config/table/read.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/table/nearest_key.h"

namespace deepspeed::config {
namespace {

/// Suggests the section's first key for a value that would fit it, as in "fp16": true. Returns "" for any
/// other value.
std::string section_hint(const Field& section, const Json& given) {
  if (given == "auto")
    return section.auto_is_default ? "; \"auto\" may stand for the values of its keys" : "";
  if (section.children.empty() || given.is_null() || given.is_structured()) return "";
  const Field& first = section.children.front();
  const auto value = canonical_value(first, given);
  return value ? "; did you mean " + json_excerpt(Json::object({{first.key, *value}})) + "?" : "";
}

[[noreturn]] void fail_value(const Field& field, const Json& given, const std::string& path) {
  const std::string hint = field.kind == Kind::kSection ? section_hint(field, given)
                           : given == "auto"
                               ? "; the client must resolve \"auto\" before the config is loaded"
                               : "";
  const std::string familiar = field.familiar_words.empty() ? "" : ": " + field.familiar_words;
  raise<ConfigError>(path, ": got ", json_excerpt(given), ", expected ", expected_value(field), hint,
                     familiar);
}

bool in_range(const Range& range, double value) {
  if (range.minimum && (range.open ? value <= *range.minimum : value < *range.minimum)) return false;
  return !range.maximum || (range.open ? value < *range.maximum : value <= *range.maximum);
}

std::optional<Json> as_choice(const Field& field, const Json& given) {
  if (!given.is_string()) return std::nullopt;
  if (field.choices.empty()) return given;
  for (const std::string& choice : field.choices) {
    if (lowercase(choice) == lowercase(given.get<std::string>())) return Json(choice);
  }
  return std::nullopt;
}

template <class Read>
std::optional<Json> as_list(const Json& given, Read read) {
  if (!given.is_array()) return std::nullopt;
  Json list = Json::array();
  for (const Json& item : given) {
    const auto value = read(item);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<int64_t> as_int_in_range(const Range& range, const Json& given) {
  const auto value = as_int(given);
  return value && in_range(range, static_cast<double>(*value)) ? value : std::nullopt;
}

template <class T>
std::optional<Json> as_json(const std::optional<T>& value) {
  return value ? std::optional<Json>(*value) : std::nullopt;
}

/// Returns a value as the field's type, or nothing if it has another type.
std::optional<Json> convert(const Field& field, const Json& given) {
  switch (field.kind) {
    case Kind::kBool:
      return as_json(as_bool(given));
    case Kind::kInt:
      return as_json(as_int(given));
    case Kind::kFloat:
      return as_json(as_float(given));
    case Kind::kString:
      return as_choice(field, given);
    case Kind::kStringList:
      return as_list(given, [&](const Json& item) { return as_choice(field, item); });
    case Kind::kIntList:
      return as_list(given, [&](const Json& item) { return as_int_in_range(field.range, item); });
    case Kind::kObject:
    case Kind::kSection:
      return given.is_object() ? std::optional<Json>(given) : std::nullopt;
    case Kind::kAny:
      return given;
  }
  return std::nullopt;
}

Json read_value(const Field& field, const Json& given, const std::string& path) {
  const auto value = canonical_value(field, given);
  if (!value) fail_value(field, given, path);
  return field.kind == Kind::kSection && !value->is_null() ? read_section(field, *value, path) : *value;
}

[[noreturn]] void fail_unknown_key(const Field& section, const std::string& key, const std::string& path) {
  const std::string where = path.empty() ? "at the top level" : "in the section " + path;
  raise<ConfigError>(join(path, path_part(key)), ": unknown key, expected a documented one ", where,
                     key_suggestion(section, key, path));
}

/// Returns the first key of `given` that sets the field; otherwise the field's own.
std::string first_name_of(const Field& field, const Json& given) {
  for (const auto& [key, unused] : given.items()) {
    if (answers_to(field, key)) return key;
  }
  return field.key;
}

/// Stores a value under the field's current name. Throws ConfigError if another key of `given` has set it
/// already.
void store(Json& values, const Field& field, Json value, const std::string& path, const std::string& given_as,
           const Json& given) {
  const auto found = values.find(field.key);
  if (found != values.end() && !found->is_null()) {
    if (value.is_null()) return;
    raise<ConfigError>(join(path, given_as), ": got it beside '", join(path, first_name_of(field, given)),
                       "', expected one of them: both set ", field.key);
  }
  values[field.key] = std::move(value);
}

void store_deprecated(Json& values, const Field& section, const Field& field, const Json& value,
                      const Json& given, const std::string& path) {
  const std::string& replacement = field.deprecation->replacement;
  const std::string old_path = join(path, field.key);
  if (replacement.empty()) {
    log::warning("[config] ", old_path, " is deprecated and has no effect");
    return;
  }
  log::warning("[config] ", old_path, " is deprecated, use ", join(path, replacement));
  for (const auto& [key, unused] : given.items()) {
    if (!answers_to(*find_field(section.children, replacement), key)) continue;
    raise<ConfigError>(old_path, ": got it beside '", join(path, replacement),
                       "', expected only the latter: the former is its deprecated name");
  }
  values[replacement] = field.deprecation->convert(value);
}

void require_keys(const Field& section, const Json& values, const std::string& path) {
  for (const Field& field : section.children) {
    if (!field.required || values.contains(field.key)) continue;
    raise<ConfigError>(join(path, field.key), ": missing, expected ", expected_value(field),
                       " in the section ", path);
  }
}

/// Throws ConfigError if `value`, at level `depth`, is nested too deep. The error's path has only the first
/// levels.
void require_depth(const Json& value, size_t depth, const std::string& path) {
  if (!value.is_structured()) return;
  if (depth >= kMaxJsonDepth) {
    raise<ConfigError>(path.empty() ? "the value" : path, ": nested too deeply, expected at most ",
                       kMaxJsonDepth, " levels");
  }
  constexpr size_t kNamedLevels = 4;
  const bool named = value.is_object() && depth < kNamedLevels;
  for (const auto& [key, item] : value.items())
    require_depth(item, depth + 1, named ? join(path, path_part(key)) : path);
}

Json without_nulls(const Json& given) {
  Json kept = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

bool holds(const Condition& condition, const Json& config) {
  return std::any_of(condition.paths.begin(), condition.paths.end(), [&](std::string path) {
    std::replace(path.begin(), path.end(), '.', '/');
    const Json::json_pointer place("/" + path);
    if (!config.contains(place)) return false;
    const auto& values = condition.values;
    return std::find(values.begin(), values.end(), config.at(place)) != values.end();
  });
}

bool values_act(const Field& field, const Json& config) {
  return field.no_effect.empty() || (field.effective_where && holds(*field.effective_where, config));
}

}  // namespace

std::optional<Json> canonical_value(const Field& field, const Json& as_given) {
  if (as_given.is_null() && field.nullable) return std::optional<Json>(std::in_place);
  const Json given = field.normalize ? field.normalize(as_given) : as_given;
  if (given.is_null() && field.nullable) return std::optional<Json>(std::in_place);
  auto value = convert(field, given);
  if (!value || (field.accepts && !field.accepts(given))) return std::nullopt;
  if (value->is_number() && !in_range(field.range, value->get<double>())) return std::nullopt;
  return value;
}

Json read_section(const Field& section, const Json& given, const std::string& path) {
  Json values = Json::object();
  for (const auto& [key, value] : given.items()) {
    const Field* field = find_field(section.children, key);
    if (field == nullptr && section.open) {
      values[key] = value;
      continue;
    }
    if (field == nullptr) fail_unknown_key(section, key, path);
    if (section.auto_is_default && value == "auto") continue;
    Json read = read_value(*field, value, join(path, key));
    if (field->deprecation) {
      store_deprecated(values, section, *field, read, given, path);
    } else {
      store(values, *field, std::move(read), path, key, given);
    }
  }
  require_keys(section, values, path);
  return values;
}

std::vector<std::string> values_without_effect(const Field& section, const Json& values,
                                               const std::string& path, const Json& config) {
  std::vector<std::string> found;
  for (const Field& field : section.children) {
    const auto value = values.find(field.key);
    if (value == values.end()) continue;
    const std::string where = join(path, field.key);
    if (!values_act(field, config) && *value != field.default_value)
      found.push_back(where + " (" + field.no_effect + ")");
    if (field.kind != Kind::kSection || !value->is_object()) continue;
    for (std::string& inner : values_without_effect(field, *value, where, config))
      found.push_back(std::move(inner));
  }
  return found;
}

Json resolve_params(const NamedType& type, const Json& given, const std::string& path) {
  if (!given.is_object() && !given.is_null()) {
    raise<ConfigError>(path, ": got ", json_excerpt(given), ", expected an object");
  }
  Json values = read_section(section(path, type.meaning, type.params), without_nulls(given), path);
  for (const Field& field : type.params) {
    if (!values.contains(field.key)) values[field.key] = field.default_value;
  }
  return values;
}

Json read_params(const NamedType& type, const Json& given, const std::string& path) {
  Json values = resolve_params(type, given, path);
  for (const std::string& line :
       values_without_effect(section(path, type.meaning, type.params), values, path)) {
    log::warning("[config] without effect: ", line);
  }
  return values;
}

void require_bounded_depth(const Json& value) { require_depth(value, 0, ""); }

}  // namespace deepspeed::config
