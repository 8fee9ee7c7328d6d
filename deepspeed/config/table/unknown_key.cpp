#include "deepspeed/config/table/unknown_key.h"

#include <algorithm>
#include <vector>

#include "deepspeed/base/text.h"
#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/config/table/read.h"

namespace deepspeed::config {
namespace {

constexpr size_t kMostSuggestions = 3;

std::vector<std::string> names_of(const Field& section) {
  std::vector<std::string> names;
  for (const Field& field : section.children) {
    names.push_back(field.key);
    names.insert(names.end(), field.aliases.begin(), field.aliases.end());
  }
  return names;
}

/// Finds keys that contain the unknown one. For example, "batch_size" is part of two keys.
/// "train_micro_batch_size" is part of one that the edit distance would not find.
std::vector<std::string> names_that_contain(const std::vector<std::string>& names, const std::string& key) {
  constexpr size_t kShortestPart = 5;
  std::vector<std::string> found;
  if (key.size() < kShortestPart) return found;
  for (const std::string& name : names) {
    if (name.find(lowercase(key)) != std::string::npos) found.push_back(name);
  }
  return found.size() <= kMostSuggestions ? found : std::vector<std::string>();
}

std::string initials_of(const std::string& name) {
  std::string initials;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '_' && (i == 0 || name[i - 1] == '_')) initials += name[i];
  }
  return initials;
}

/// Finds keys whose long or short form is the unknown one. Examples: "learning_rate" for "lr", "wd" for
/// "weight_decay", "epsilon" for "eps".
std::vector<std::string> other_forms(const std::vector<std::string>& names, const std::string& key) {
  constexpr size_t kShortestStem = 3;
  const std::string given = lowercase(key);
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool is_stem = name.size() >= kShortestStem && given.starts_with(name);
    if (is_stem || (given.size() > 1 && (initials_of(given) == name || initials_of(name) == given)))
      found.push_back(name);
  }
  return found.size() <= kMostSuggestions ? found : std::vector<std::string>();
}

void collect_paths(const Field& section, const std::string& path, const std::string& key,
                   std::vector<std::string>& paths) {
  for (const Field& field : section.children) {
    const std::string own = join(path, field.key);
    if (field.key == lowercase(key)) paths.push_back(own);
    collect_paths(field, own, key, paths);
  }
}

bool is_argument(const std::vector<NamedType>& types, const std::string& key) {
  return std::any_of(types.begin(), types.end(),
                     [&](const NamedType& type) { return find_field(type.params, key) != nullptr; });
}

/// Finds the key in other sections. A key that many sections have is no help and is ignored.
std::vector<std::string> paths_elsewhere(const std::string& key) {
  std::vector<std::string> paths;
  collect_paths(all_options(), "", key, paths);
  if (is_argument(optimizer_types(), key)) paths.push_back("optimizer.params." + key);
  if (is_argument(scheduler_types(), key)) paths.push_back("scheduler.params." + key);
  return paths.size() <= kMostSuggestions ? paths : std::vector<std::string>();
}

std::vector<std::string> joined_to(const std::string& path, std::vector<std::string> names) {
  for (std::string& name : names) name = join(path, name);
  return names;
}

}  // namespace

std::string key_suggestion(const Field& section, const std::string& key, const std::string& path) {
  const std::vector<std::string> names = names_of(section);
  std::vector<std::string> meant = joined_to(path, names_that_contain(names, key));
  if (meant.empty()) meant = joined_to(path, nearest_keys(key, names, 1));
  if (meant.empty()) meant = joined_to(path, other_forms(names, key));
  if (meant.empty()) meant = paths_elsewhere(key);
  return did_you_mean(meant);
}

}  // namespace deepspeed::config
