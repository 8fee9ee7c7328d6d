// Guesses what a user meant by a key that a section does not have.
#pragma once

#include <string>

#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Writes "; did you mean 'fp16.enabled'?" for an unknown key; empty without a suggestion. It suggests keys
/// of the section at `path` that contain the unknown key. If there are none it suggests the nearest key, or
/// keys with that name elsewhere in the config.
std::string key_suggestion(const Field& section, const std::string& key, const std::string& path);

}  // namespace deepspeed::config
