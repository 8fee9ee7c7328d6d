#include "deepspeed/config/table/named_type.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

Json without_nulls(const Json& given) {
  Json kept = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

}  // namespace

const NamedType* find_type(const std::vector<NamedType>& types, const std::string& name) {
  const auto found = std::find_if(types.begin(), types.end(), [&](const NamedType& type) {
    return type.name == name || (type.any_case && lowercase(type.name) == lowercase(name));
  });
  return found == types.end() ? nullptr : &*found;
}

const NamedType* find_one_bit_optimizer(const std::string& type) {
  const NamedType* const found = find_type(optimizer_types(), type);
  return found != nullptr && found->is_one_bit ? found : nullptr;
}

std::vector<std::string> type_names(const std::vector<NamedType>& types) {
  std::vector<std::string> names;
  for (const NamedType& type : types) names.push_back(type.name);
  return names;
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

}  // namespace deepspeed::config
