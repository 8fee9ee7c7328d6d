#include "deepspeed/config/help.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/field.h"
#include "deepspeed/config/nearest_key.h"
#include "deepspeed/config/read.h"

namespace deepspeed::config {
namespace {

std::string default_text(const Field& field) {
  if (field.kind == Kind::kSection) return "";
  if (field.required) return "; required";
  return "; default " + field.default_value.dump();
}

std::string support_text(const Field& field) {
  if (!field.supported_values) return "";
  if (field.kind == Kind::kSection) return "; not supported yet";
  std::string values;
  for (const Json& value : *field.supported_values) values += (values.empty() ? "" : ", ") + value.dump();
  return "; supported so far: " + values;
}

std::string alias_text(const Field& field) {
  std::string text;
  for (const std::string& alias : field.aliases) text += "; also " + alias;
  if (field.deprecation) {
    const std::string& replacement = field.deprecation->replacement;
    text += "; deprecated, " + (replacement.empty() ? "without effect" : "use " + replacement);
  }
  return text;
}

std::string headline(const Field& field, const std::string& path) {
  return path + ": " + expected_value(field) + default_text(field) + support_text(field) + alias_text(field);
}

/// Calls `visit(field, path)` for the field and all below it, in the order of the tables.
template <class Visit>
void walk(const Field& field, const std::string& path, const Visit& visit) {
  if (!path.empty()) visit(field, path);
  for (const Field& child : field.children) walk(child, join(path, child.key), visit);
}

}  // namespace

std::string help_text(const std::string& section) {
  std::string text;
  std::vector<std::string> paths;
  walk(all_options(), "", [&](const Field& field, const std::string& path) {
    paths.push_back(path);
    const bool wanted = section.empty() || path == section || path.starts_with(section + ".");
    if (wanted) text += headline(field, path) + "\n    " + field.meaning + "\n";
  });
  if (!text.empty()) return text;
  const std::string nearest = nearest_key(section, paths);
  raise<UsageError>("config", "got ", json_excerpt(Json(section)),
                    ", expected the path of a section or a key",
                    nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

std::vector<std::string> option_list() {
  std::vector<std::string> lines;
  walk(all_options(), "",
       [&](const Field& field, const std::string& path) { lines.push_back(headline(field, path)); });
  return lines;
}

}  // namespace deepspeed::config
