// Writes values as Python prints them, for texts that programs of both languages share.
#pragma once

#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::accelerate {

/// Returns Python's repr() of the value: `{'stage': 3, 'enabled': True, 'path': None, 'steps': inf}`.
DEEPSPEED_API std::string python_repr(const Json& value);

/// Returns Python's str() of the value. It differs from python_repr() for text, which is not quoted.
DEEPSPEED_API std::string python_str(const Json& value);

}  // namespace deepspeed::accelerate
