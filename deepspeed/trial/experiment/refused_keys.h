// Keys of Determined's experiments that have no meaning without its cluster.
#pragma once

#include <string>

namespace deepspeed::trial {

/// Returns why a key is refused and what to do instead; "" for other keys. `path` is "resources.priority".
std::string refusal_of(const std::string& path);

}  // namespace deepspeed::trial
