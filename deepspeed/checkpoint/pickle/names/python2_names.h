// Pickles of protocol 2 and older use Python 2's names for the standard library. Python 3 writes
// `__builtin__.long` for its int, and translates back as this file does.
#pragma once

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::checkpoint {

/// Returns Python 3's name for what a pickle of protocol 2 or older calls `name`.
Global python3_name(Global name);

}  // namespace deepspeed::checkpoint
