// Combines several operations, and what this rank does after them, into one Work. Internal to this folder.
#pragma once

#include <functional>
#include <vector>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Returns a Work that is done after all `works` and `finish`. `finish` may be empty. It runs once, in the
/// first wait() after all of `works` are done, and must own the tensors that it needs.
Work joined_work(std::vector<Work> works, std::function<void()> finish);

}  // namespace deepspeed::comm
