#include "deepspeed/config/agreed_values.h"

#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void collect(const Field& section, const Json& values, const std::string& path, Values& result) {
  for (const Field& field : section.children) {
    const auto value = values.find(field.key);
    if (field.per_rank || value == values.end()) continue;
    if (field.kind == Kind::kSection && value->is_object()) {
      collect(field, *value, join(path, field.key), result);
    } else {
      result.emplace_back(join(path, field.key), text_of(*value));
    }
  }
}

/// Adds the type's documented name, and its arguments with defaults, to `values`.
template <class Section>
void resolve_type(const std::optional<Section>& section, const std::vector<NamedType>& types,
                  const std::string& name, Json& values) {
  const NamedType* type = section ? find_type(types, section->type) : nullptr;
  if (type == nullptr) return;
  values[name]["type"] = type->name;
  values[name]["params"] = resolve_params(*type, section->params, name + ".params");
}

void collect_params(const Json& values, const std::string& name, Values& result) {
  const auto section = values.find(name);
  if (section == values.end() || !section->is_object()) return;
  const Json params = section->value("params", Json());
  if (!params.is_object()) return;
  for (const auto& [key, value] : params.items())
    result.emplace_back(join(name + ".params", key), text_of(value));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> agreed_values(const DeepSpeedConfig& config) {
  Json values = to_json(config);
  resolve_type(config.optimizer, optimizer_types(), "optimizer", values);
  resolve_type(config.scheduler, scheduler_types(), "scheduler", values);
  Values result;
  collect(all_options(), values, "", result);
  std::erase_if(result, [](const auto& entry) {
    return entry.first == "optimizer.params" || entry.first == "scheduler.params";
  });
  collect_params(values, "optimizer", result);
  collect_params(values, "scheduler", result);
  return result;
}

}  // namespace deepspeed::config
