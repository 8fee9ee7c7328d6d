#include "deepspeed/config/support.h"

#include <algorithm>
#include <optional>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

bool is_supported(const Field& field, const Json& value) {
  const auto& supported = field.supported_values;
  return !supported || std::find(supported->begin(), supported->end(), value) != supported->end();
}

/// Says what the user can do about a feature that does not exist yet.
std::string way_out_of(const Field& field) {
  if (field.kind == Kind::kSection) return "; leave the section out";
  std::string values;
  for (const Json& value : *field.supported_values)
    values += (values.empty() ? ", supported so far: " : ", ") + json_excerpt(value);
  return values;
}

[[noreturn]] void fail_unsupported(const Field& field, const Json& value, const std::string& path) {
  const std::string got = json_excerpt(value);
  if (!field.refusal.empty()) raise<ConfigError>(path, ": not supported, got ", got, ": ", field.refusal);
  raise<ConfigError>(path, ": not supported yet, got ", got, way_out_of(field));
}

/// Checks a key's value. A deprecated key is checked as the key that replaces it.
void require_supported_value(const Field& section, const Field& field, const Json& value,
                             const std::string& path) {
  if (field.deprecation) {
    const Field* replacement = find_field(section.children, field.deprecation->replacement);
    if (replacement == nullptr) return;
    const Json converted = field.deprecation->convert(value);
    return require_supported_value(section, *replacement, converted, path);
  }
  if (!is_supported(field, value)) fail_unsupported(field, value, path);
  if (field.kind == Kind::kSection && value.is_object()) require_supported(field, value, path);
}

}  // namespace

void require_supported(const Field& section, const Json& given, const std::string& path) {
  for (const auto& [key, value] : given.items()) {
    const Field* field = find_field(section.children, key);
    if (field == nullptr || (section.auto_is_default && value == "auto")) continue;
    const auto canonical = canonical_value(*field, value);
    if (canonical) require_supported_value(section, *field, *canonical, join(path, key));
  }
}

}  // namespace deepspeed::config
