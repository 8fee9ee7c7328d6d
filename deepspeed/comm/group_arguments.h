// Shares code for the groups, ranks and Work in functions.h. Internal to this folder.
#pragma once

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Returns the group, or the world's if it is empty.
ProcessGroup or_world(const ProcessGroup& group);

/// Returns the rank in `group` of a global rank. Throws UsageError, naming `call` and the argument `what`, if
/// it is not a member.
int rank_in(const ProcessGroup& group, const char* call, const char* what, int global_rank);

/// Returns `work`, after waiting for it unless async_op.
Work finish_unless_async(Work work, bool async_op);

}  // namespace deepspeed::comm
