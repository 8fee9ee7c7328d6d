// One Work stands for several operations and what is left to do on this rank when they are done. Internal to
// this folder.
#pragma once

#include <functional>
#include <vector>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Joins the works. `finish` (may be empty) runs once, in the first wait() that finds all of `works` done. It
/// holds the tensors that it needs.
Work joined_work(std::vector<Work> works, std::function<void()> finish);

}  // namespace deepspeed::comm
