#include "deepspeed/config/help_search.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>

#include "deepspeed/base/text.h"
#include "deepspeed/config/table/nearest_key.h"

namespace deepspeed::config {
namespace {

/// Limits searches inside words: shorter texts would match by chance, like "lr" in "allreduce".
constexpr size_t kShortestPart = 3;

/// Lists the ways in which an entry can match, best first.
enum class Fit { kKey, kWordOfKey, kPartOfKey, kPartOfPath, kMeaning };

std::string last_key(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// Converts a text to lower case with underscores between words.
std::string with_underscores(const std::string& text) {
  std::string result = lowercase(text);
  for (char& c : result) c = c == ' ' || c == '-' ? '_' : c;
  return result;
}

std::string without_separators(const std::string& text) {
  std::string result;
  for (const char c : with_underscores(text)) {
    if (c != '_') result += c;
  }
  return result;
}

bool has_word_beginning_with(const std::string& text, const std::string& beginning) {
  for (size_t at = text.find(beginning); at != std::string::npos; at = text.find(beginning, at + 1)) {
    if (at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0) return true;
  }
  return false;
}

bool has_part(const std::string& text, const std::string& part) {
  return part.size() >= kShortestPart && without_separators(text).find(part) != std::string::npos;
}

std::optional<Fit> fit_of(const HelpEntry& entry, const std::string& text) {
  const std::string words = with_underscores(text);
  const std::string part = without_separators(text);
  const std::string key = lowercase(last_key(entry.path));
  if (key == words) return Fit::kKey;
  if (has_word_beginning_with(key, words)) return Fit::kWordOfKey;
  if (has_part(key, part)) return Fit::kPartOfKey;
  if (has_part(entry.path, part)) return Fit::kPartOfPath;
  if (has_word_beginning_with(lowercase(entry.meaning), lowercase(text))) return Fit::kMeaning;
  return std::nullopt;
}

}  // namespace

std::vector<HelpEntry> search_help(const std::vector<HelpEntry>& entries, const std::string& text) {
  std::vector<HelpEntry> found;
  if (without_separators(text).empty()) return found;
  for (const Fit fit : {Fit::kKey, Fit::kWordOfKey, Fit::kPartOfKey, Fit::kPartOfPath, Fit::kMeaning}) {
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(found),
                 [&](const HelpEntry& entry) { return fit_of(entry, text) == fit; });
  }
  return found;
}

std::string help_suggestion(const std::vector<HelpEntry>& entries, const std::string& text) {
  constexpr size_t kMost = 3;
  std::vector<std::string> names;
  for (const HelpEntry& entry : entries) {
    names.push_back(entry.path);
    names.push_back(last_key(entry.path));
  }
  return did_you_mean(nearest_keys(text, names, kMost));
}

}  // namespace deepspeed::config
