#include "deepspeed/checkpoint/content/json_value.h"

#include <limits>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

/// Converts the value at `path`, which errors name. "" is the whole value, "betas.0" lies inside.
Json json_at(const Value& value, const std::string& path);

std::string path_to(const std::string& outer, const std::string& key) {
  return outer.empty() ? key : outer + "." + key;
}

Json array_of(const std::vector<Value>& items, const std::string& path) {
  Json array = Json::array();
  for (const Value& item : items) array.push_back(json_at(item, path_to(path, std::to_string(array.size()))));
  return array;
}

Json object_of(const Dict& dict, const std::string& path) {
  Json object = Json::object();
  for (const auto& [key, value] : dict.items()) {
    const auto* number = key.get_if<int64_t>();
    const std::string name = number != nullptr ? std::to_string(*number) : key.as_string();
    object[name] = json_at(value, path_to(path, name));
  }
  return object;
}

Json json_at(const Value& value, const std::string& path) {
  if (value.is_none()) return nullptr;
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* number = value.get_if<int64_t>()) return *number;
  if (const auto* number = value.get_if<double>()) return *number;
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* list = value.get_if<List>()) return array_of(*list, path);
  if (const auto* tuple = value.get_if<Tuple>()) return array_of(tuple->items, path);
  if (const auto* set = value.get_if<Set>()) return array_of(set->items, path);
  if (const auto* set = value.get_if<FrozenSet>()) return array_of(set->items, path);
  if (const auto* size = value.get_if<Size>()) return size->dims;
  if (const auto* dict = value.get_if<Dict>()) return object_of(*dict, path);
  if (const auto* tensor = value.get_if<at::Tensor>(); tensor != nullptr && tensor->dim() == 0) {
    if (at::isIntegralType(tensor->scalar_type(), /*includeBool=*/false)) return value.as_int();
    return value.as_double();
  }
  raise<CheckpointError>("a ", value.kind(), path.empty() ? "" : " at '" + path + "'",
                         " cannot be read as JSON, expected numbers, texts, truth values, lists and dicts");
}

}  // namespace

Value value_of_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max())) return json.get<double>();
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      List list;
      for (const Json& item : json) list.push_back(value_of_json(item));
      return list;
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.items().emplace_back(key, value_of_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

Json json_of_value(const Value& value) { return json_at(value, ""); }

}  // namespace deepspeed::checkpoint
