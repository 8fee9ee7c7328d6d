// The documentation of the config, written from the tables.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::config {

/// Writes a block of lines for each key: its path, what it takes, its default, what works so far, its
/// meaning. `subject` is the dotted path of a section or a key; empty: all. Another text is searched for:
/// first come keys whose names have it, then those whose paths or meanings do. Throws UsageError, naming the
/// nearest keys, where there is none.
DEEPSPEED_API std::string help_text(const std::string& subject = "");

/// Writes one line a key, "path: what it takes, default": the whole surface of options.
DEEPSPEED_API std::vector<std::string> option_list();

/// Lists the paths of keys and sections that lack some documented values so far, in the order of the tables.
DEEPSPEED_API std::vector<std::string> not_supported_yet();

/// Writes docs/config.md: a table for each section.
DEEPSPEED_API std::string help_markdown();

}  // namespace deepspeed::config
