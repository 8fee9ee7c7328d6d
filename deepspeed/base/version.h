// The version of the library that the program runs with, which may be a later patch than the one it was built
// against.
#pragma once

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Returns the version, such as "0.1.0". Releases with equal first two numbers can replace each other.
DEEPSPEED_API const char* version();

}  // namespace deepspeed
