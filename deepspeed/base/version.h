// The version of the library that the program runs with, which may be a later patch than the one it was built
// against.
#pragma once

namespace deepspeed {

/// "0.1.0": releases of the same first two numbers take each other's place.
const char* version();

}  // namespace deepspeed
