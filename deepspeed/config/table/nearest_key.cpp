// Compares a misspelled key with the known ones by their edit distance.
//
// key_suggestion() looks for a section's key in several ways and stops at the first that finds some. It tries
// keys of the section that contain the unknown one, then the nearest one, then long and short forms. At last
// it looks for the key in all other sections and among the arguments of optimizers and schedules.
#include "deepspeed/config/table/nearest_key.h"

#include <algorithm>
#include <map>

#include "deepspeed/base/text.h"
#include "deepspeed/config/table/named_type.h"

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

/// Returns the names that contain the unknown key. For example, "batch_size" is part of two keys.
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

/// Returns the names whose long or short form is the unknown key. Examples of unknown keys: "learning_rate"
/// for "lr", "wd" for "weight_decay", "epsilon" for "eps".
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

/// Returns the paths in the whole config whose last part is the key. Returns none if there are too many to
/// help.
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

size_t edit_distance(const std::string& a, const std::string& b) {
  // rows[i % 3][j] is the distance between the first i bytes of a and the first j bytes of b.
  std::vector<std::vector<size_t>> rows(3, std::vector<size_t>(b.size() + 1));
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i + 2) % 3];
    const auto& two_above = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::vector<std::string> nearest_keys(const std::string& key, const std::vector<std::string>& candidates,
                                      size_t most) {
  constexpr size_t kLongestKey = 100;
  std::vector<std::string> nearest;
  if (key.size() > kLongestKey) return nearest;
  const size_t furthest = std::max<size_t>(2, key.size() / 3);
  std::map<size_t, std::vector<std::string>> by_distance;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(lowercase(key), lowercase(candidate));
    // A candidate that shares no byte with the key is not a correction of it.
    if (distance <= furthest && distance < key.size()) by_distance[distance].push_back(candidate);
  }
  for (const auto& [distance, keys] : by_distance) {
    if (distance > by_distance.begin()->first + 1) break;
    for (const std::string& near : keys) {
      const bool is_new = std::find(nearest.begin(), nearest.end(), near) == nearest.end();
      if (is_new && nearest.size() < most) nearest.push_back(near);
    }
  }
  return nearest;
}

std::string nearest_key(const std::string& key, const std::vector<std::string>& candidates) {
  const std::vector<std::string> nearest = nearest_keys(key, candidates, 1);
  return nearest.empty() ? "" : nearest.front();
}

std::string did_you_mean(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const char* before = i == 0 ? "; did you mean " : i + 1 == names.size() ? " or " : ", ";
    text += before + ("'" + names[i] + "'");
  }
  return text.empty() ? text : text + "?";
}

std::string key_suggestion(const Field& section, const std::string& key, const std::string& path) {
  const std::vector<std::string> names = names_of(section);
  std::vector<std::string> meant = joined_to(path, names_that_contain(names, key));
  if (meant.empty()) meant = joined_to(path, nearest_keys(key, names, 1));
  if (meant.empty()) meant = joined_to(path, other_forms(names, key));
  if (meant.empty()) meant = paths_elsewhere(key);
  return did_you_mean(meant);
}

}  // namespace deepspeed::config
