// Pickles of protocol 2 and older name the standard library as Python 2 did: Python 3 writes
// `__builtin__.long` for its int, and translates back as here.
#pragma once

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns the name under which Python 3 finds what a pickle of protocol 2 or older calls `name`.
Global python3_name(Global name);

}  // namespace deepspeed::checkpoint
