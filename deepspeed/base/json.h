// The JSON type of the project: keys keep the order in which a file gives them.
#pragma once

#include <nlohmann/json.hpp>

namespace deepspeed {

using Json = nlohmann::ordered_json;

}  // namespace deepspeed
