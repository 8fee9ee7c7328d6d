// The world of the core: the ranks of the group that torch.distributed has made.
#pragma once

#include "deepspeed/comm/init.h"

namespace deepspeed::python {

/// Returns the world that _core.adopt_world() has made; an empty handle before.
comm::World current_world();

}  // namespace deepspeed::python
