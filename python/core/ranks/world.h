// The core's world: the ranks of the group that torch.distributed made.
#pragma once

#include "deepspeed/comm/init.h"

namespace deepspeed::python {

/// Returns the world that _core.adopt_world() made, or an empty handle before that.
comm::World current_world();

}  // namespace deepspeed::python
