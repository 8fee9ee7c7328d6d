// Searches the documentation of the config for a word.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::config {

/// Holds the help for one key, section or type.
struct HelpEntry {
  std::string path;  // "optimizer.params[AdamW].lr"
  std::string headline;
  std::string meaning;
};

/// Returns the entries that contain `text` in their key, their path or their meaning. In a meaning it must
/// begin a word. Exact keys come first and matches only in the meaning last. Case, blanks, dashes and
/// underscores are ignored.
std::vector<HelpEntry> search_help(const std::vector<HelpEntry>& entries, const std::string& text);

/// Returns "; did you mean 'a' or 'b'?" with similar paths and keys; "" if there are none.
std::string help_suggestion(const std::vector<HelpEntry>& entries, const std::string& text);

}  // namespace deepspeed::config
