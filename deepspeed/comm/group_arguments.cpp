#include "deepspeed/comm/group_arguments.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"

namespace deepspeed::comm {

ProcessGroup or_world(const ProcessGroup& group) { return group ? group : world().group(); }

int rank_in(const ProcessGroup& group, const char* call, const char* what, int global_rank) {
  const auto& ranks = group.global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  if (found == ranks.end()) {
    raise<UsageError>(call, ": ", what, " is rank ", global_rank, ", which is not in group '", group.name(),
                      "'");
  }
  return static_cast<int>(found - ranks.begin());
}

Work finish_unless_async(Work work, bool async_op) {
  if (!async_op) work.wait();
  return work;
}

}  // namespace deepspeed::comm
