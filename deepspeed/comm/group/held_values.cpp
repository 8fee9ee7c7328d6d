#include "deepspeed/comm/group/held_values.h"

#include <algorithm>
#include <unordered_map>

#include "deepspeed/base/message.h"

namespace deepspeed::comm {
namespace {

constexpr size_t kNamedDifferences = 4;  // more would hide the first
constexpr size_t kLongestText = 120;
constexpr const char* kAbsent = "absent";

using Lookup = std::unordered_map<std::string, const std::string*>;

Lookup lookup_of(const NamedTexts& values) {
  Lookup lookup;
  for (const auto& [name, text] : values) lookup.emplace(name, &text);
  return lookup;
}

std::string shown(const Lookup& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) return kAbsent;
  const std::string& text = *found->second;
  return text.size() <= kLongestText ? text : text.substr(0, kLongestText) + "...";
}

// Names that exist on just one rank come last, because they may follow from a differing value.
std::vector<std::string> differing_names(const NamedTexts& values, const Lookup& own, const NamedTexts& other,
                                         const Lookup& others) {
  std::vector<std::string> names, absent;
  for (const auto& [name, text] : values) {
    const auto found = others.find(name);
    if (found == others.end()) absent.push_back(name);
    if (found != others.end() && *found->second != text) names.push_back(name);
  }
  for (const auto& [name, text] : other) {
    if (!own.contains(name)) absent.push_back(name);
  }
  names.insert(names.end(), absent.begin(), absent.end());
  return names;
}

}  // namespace

std::string describe_differences(int rank, const NamedTexts& values, int other_rank,
                                 const NamedTexts& other) {
  const Lookup own = lookup_of(values);
  const Lookup others = lookup_of(other);
  const auto names = differing_names(values, own, other, others);
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamedDifferences); ++i) {
    text += message(i == 0 ? "" : "; ", names[i], " is ", shown(own, names[i]), " on rank ", rank, " and ",
                    shown(others, names[i]), " on rank ", other_rank);
  }
  if (names.size() > kNamedDifferences) {
    text += message("; and ", names.size() - kNamedDifferences, " more differences");
  }
  return text;
}

}  // namespace deepspeed::comm
