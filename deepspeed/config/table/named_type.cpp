#include "deepspeed/config/table/named_type.h"

#include <algorithm>

#include "deepspeed/base/text.h"

namespace deepspeed::config {

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

}  // namespace deepspeed::config
