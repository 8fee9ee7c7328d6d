// Which keys of a dict are equal is known here of numbers, texts and tuples of such; Python knows the rest.
#pragma once

#include <optional>
#include <string>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns a text that is equal for equal keys; nothing for an object, a frozenset or a tensor, whose
/// equality only Python knows. Throws CheckpointError for what Python cannot hash: a list, a dict, a set, a
/// bytearray.
std::optional<std::string> key_text(const Value& key);

}  // namespace deepspeed::checkpoint
