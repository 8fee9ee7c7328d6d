// Finds in the documentation of the config what a word is about.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::config {

/// The help for one key, section or type.
struct HelpEntry {
  std::string path;  // "optimizer.params[AdamW].lr"
  std::string headline;
  std::string meaning;
};

/// Finds the entries that have `text` in their key, their path or, at the beginning of a word, in their
/// meaning; those whose key it is come first, those that only mean it last. Case, blanks, dashes and
/// underscores do not matter.
std::vector<HelpEntry> search_help(const std::vector<HelpEntry>& entries, const std::string& text);

/// Writes "; did you mean 'a' or 'b'?" with paths and keys near `text`; empty where none is.
std::string help_suggestion(const std::vector<HelpEntry>& entries, const std::string& text);

}  // namespace deepspeed::config
