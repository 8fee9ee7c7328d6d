// The documentation of the config, written from the tables.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::config {

/// A block of lines for each key: its path, what it takes, its default, what works so far, its meaning.
/// `subject` is the dotted path of a section or a key; empty: all. Another text is searched for: the keys
/// come whose names have it, then those whose paths or meanings do. Throws UsageError, naming the nearest
/// keys, where there is none.
std::string help_text(const std::string& subject = "");

/// One line a key, "path: what it takes, default": the whole surface of options.
std::vector<std::string> option_list();

/// The paths of the keys and sections of which some documented values come later, in the order of the tables.
std::vector<std::string> not_supported_yet();

/// docs/config.md: a table for each section.
std::string help_markdown();

}  // namespace deepspeed::config
