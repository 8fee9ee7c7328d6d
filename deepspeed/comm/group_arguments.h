// What the functions of functions.h do with their group, ranks and Work. Internal to this folder.
#pragma once

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// The world's group in place of an empty one.
ProcessGroup or_world(const ProcessGroup& group);

/// The rank inside `group` of a global rank. Throws UsageError naming `call` and the argument `what` where it
/// is not a member.
int rank_in(const ProcessGroup& group, const char* call, const char* what, int global_rank);

/// `work`, waited for unless async_op.
Work finish_unless_async(Work work, bool async_op);

}  // namespace deepspeed::comm
