#include "deepspeed/config/table/nearest_key.h"

#include <algorithm>
#include <map>

#include "deepspeed/base/text.h"

namespace deepspeed::config {

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

}  // namespace deepspeed::config
