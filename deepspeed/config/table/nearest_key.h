// "Did you mean": finds the known key that a misspelled one was probably meant to be.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Counts the insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
DEEPSPEED_API size_t edit_distance(const std::string& a, const std::string& b);

/// Returns the candidates nearest to `key`, at most `most`, each once. They are those at the smallest edit
/// distance, then those one edit further. Case is ignored. The list is empty if all need more than max(2,
/// key.size() / 3) edits.
DEEPSPEED_API std::vector<std::string> nearest_keys(const std::string& key,
                                                    const std::vector<std::string>& candidates, size_t most);

/// Returns the first of nearest_keys(), or "" if there is none.
DEEPSPEED_API std::string nearest_key(const std::string& key, const std::vector<std::string>& candidates);

/// Returns "; did you mean 'a', 'b' or 'c'?"; "" if there is no name.
DEEPSPEED_API std::string did_you_mean(const std::vector<std::string>& names);

/// Returns "; did you mean 'fp16.enabled'?" for an unknown key; "" without a suggestion. It suggests keys of
/// the section at `path` that contain the unknown key. If there are none it suggests the nearest key, or keys
/// with that name elsewhere in the config.
std::string key_suggestion(const Field& section, const std::string& key, const std::string& path);

}  // namespace deepspeed::config
