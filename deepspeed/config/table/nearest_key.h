// "Did you mean": the known key that a misspelled one was probably meant to be.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::config {

/// Counts the insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
DEEPSPEED_API size_t edit_distance(const std::string& a, const std::string& b);

/// Returns the candidates of the least distance from `key` and of one more, nearest first, each once and at
/// most `most`; upper and lower case alike; none where none is near.
DEEPSPEED_API std::vector<std::string> nearest_keys(const std::string& key,
                                                    const std::vector<std::string>& candidates, size_t most);

/// Returns the candidate with the least distance from `key`, upper and lower case alike; empty where none is
/// near.
DEEPSPEED_API std::string nearest_key(const std::string& key, const std::vector<std::string>& candidates);

/// Writes "; did you mean 'a', 'b' or 'c'?"; empty where there is no name.
DEEPSPEED_API std::string did_you_mean(const std::vector<std::string>& names);

}  // namespace deepspeed::config
