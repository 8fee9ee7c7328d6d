// The functions of functions.h share what they do with their group, ranks and Work. Internal to this folder.
#pragma once

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Returns the group, or the world's in place of an empty one.
ProcessGroup or_world(const ProcessGroup& group);

/// Returns the rank inside `group` of a global rank. Throws UsageError naming `call` and the argument `what`
/// where it is not a member.
int rank_in(const ProcessGroup& group, const char* call, const char* what, int global_rank);

/// Returns `work`, waited for unless async_op.
Work finish_unless_async(Work work, bool async_op);

}  // namespace deepspeed::comm
