// Work that is done or has failed on all ranks alike.
#pragma once

#include <functional>

#include "deepspeed/comm/process_group.h"

namespace deepspeed {

/// Runs `work` here, then lets all ranks of `group` know: where it failed on one, all throw, naming the rank
/// and its reason (CheckpointError; the rank itself its own error). `what`: "saving", for the message.
void on_all_ranks(const comm::ProcessGroup& group, const char* what, const std::function<void()>& work);

}  // namespace deepspeed
