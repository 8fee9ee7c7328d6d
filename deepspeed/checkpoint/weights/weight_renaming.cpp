#include "deepspeed/checkpoint/weights/weight_renaming.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

// Names come from files, and std::regex recurses once per character, so their length is limited.
constexpr size_t kMaxNameBytes = 1000;

std::regex parse_pattern(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    raise<UsageError>("'", pattern, "' is no regular expression: ", error.what());
  }
}

void check_length(const std::string& name) {
  if (name.size() <= kMaxNameBytes) return;
  raise<CheckpointError>("a weight has a name of ", name.size(), " bytes ('", name.substr(0, 60),
                         "...'), expected at most ", kMaxNameBytes);
}

}  // namespace

WeightRenaming::WeightRenaming(std::map<std::string, std::string> exact, const std::vector<RenameRule>& rules)
    : exact_(std::move(exact)) {
  for (const auto& [pattern, replacement] : rules) rules_.emplace_back(parse_pattern(pattern), replacement);
}

std::optional<std::string> WeightRenaming::rename(const std::string& name) const {
  std::string renamed = name;
  if (const auto found = exact_.find(name); found != exact_.end()) {
    renamed = found->second;
  } else {
    for (const auto& [pattern, replacement] : rules_) {
      check_length(renamed);
      renamed = std::regex_replace(renamed, pattern, replacement);
    }
  }
  return renamed.empty() ? std::nullopt : std::optional(std::move(renamed));
}

NamePatterns::NamePatterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) patterns_.push_back(parse_pattern(pattern));
}

bool NamePatterns::fit(const std::string& name) const {
  return std::ranges::any_of(patterns_, [&](const std::regex& pattern) {
    check_length(name);
    return std::regex_search(name, pattern);
  });
}

}  // namespace deepspeed::checkpoint
