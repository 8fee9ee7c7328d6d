// Guesses what a user meant by a key that a section does not have.
#pragma once

#include <string>

#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Writes "; did you mean 'fp16.enabled'?" with the keys of the section (of the path `path`) that contain the
/// key, else the nearest one, else those of that name elsewhere in the config; empty where there is none.
std::string key_suggestion(const Field& section, const std::string& key, const std::string& path);

}  // namespace deepspeed::config
