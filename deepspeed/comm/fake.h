// A world without other processes serves dry runs at any size, and is the real thing for a world of one.
#pragma once

#include "deepspeed/comm/init.h"

namespace deepspeed::comm {

/// Makes rank `rank` of a world of `size` ranks in this process alone. Collectives leave what they would
/// leave if every rank held the same tensors as this one: a sum multiplies by the size, an all-gather repeats
/// the input; send drops its tensor and recv leaves it as it is. backend() is "fake". Throws UsageError for a
/// rank out of range.
World make_fake_world(int size, int rank = 0);

}  // namespace deepspeed::comm
