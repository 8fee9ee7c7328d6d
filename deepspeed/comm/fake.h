// Makes a world without other processes, for dry runs of any size. With one rank it is a real world.
#pragma once

#include "deepspeed/comm/init.h"

namespace deepspeed::comm {

/// Makes rank `rank` of a world of `size` ranks without other processes. Collectives behave as if every rank
/// held the same tensors: a sum multiplies by the size, and an all-gather repeats the input. send drops its
/// tensor, and recv leaves its tensor unchanged. backend() is "fake". Throws UsageError for a rank out of
/// range.
World make_fake_world(int size, int rank = 0);

}  // namespace deepspeed::comm
