// Work that every rank does, and whose failure on one rank every rank learns.
#pragma once

#include <functional>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed {

/// Runs `work` here, then lets all ranks of the group know: where it failed on one, all throw, naming the
/// rank and its reason. `what`: for the message, "saving".
void on_all_ranks(const comm::ProcessGroup& group, const char* what, const std::function<void()>& work);

}  // namespace deepspeed
