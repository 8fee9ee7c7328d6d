// The JSON type of the project. Keys keep the order of the file.
#pragma once

#include <nlohmann/json.hpp>

namespace deepspeed {

using Json = nlohmann::ordered_json;

}  // namespace deepspeed
