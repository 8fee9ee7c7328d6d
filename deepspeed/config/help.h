// Documents the config from the tables.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::config {

/// Returns a block of lines for each key: path, accepted values, default, support, meaning. `subject` is the
/// dotted path of a section or key; empty: all. Any other text is searched for. Keys whose names contain it
/// come first, then those whose paths or meanings do. Throws UsageError, naming the nearest keys, if nothing
/// is found.
DEEPSPEED_API std::string help_text(const std::string& subject = "");

/// Returns one line per key, "path: what it takes, default", for all options.
DEEPSPEED_API std::vector<std::string> option_list();

/// Lists keys and sections with documented values that are not supported yet, in table order.
DEEPSPEED_API std::vector<std::string> not_supported_yet();

/// Returns the text of docs/config.md, with a table for each section.
DEEPSPEED_API std::string help_markdown();

}  // namespace deepspeed::config
