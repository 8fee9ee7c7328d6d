// Each rank does this work by itself, and all ranks learn of its failure on one before they meet in a
// collective that the failed one would not reach.
#pragma once

#include <functional>
#include <optional>
#include <source_location>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

struct FailedRank {
  int rank = 0;  // in the group: the first of those that failed
  std::string reason;
};

/// Runs `work`, which talks to no other rank, and tells the ranks of the group how it ended. Throws what
/// `work` threw here; returns who failed where it ended well here but not everywhere. Collective.
std::optional<FailedRank> run_and_tell(const ProcessGroup& group, const std::function<void()>& work);

/// Runs `work` as run_and_tell() does. Where another rank failed, this one throws an `E` from `where` that
/// names the rank, what was done ("saving") and the reason. Collective.
template <class E = IoError>
void on_all_ranks(const ProcessGroup& group, const char* what, const std::function<void()>& work,
                  const std::source_location& where = std::source_location::current()) {
  if (const auto failed = run_and_tell(group, work))
    raise_at<E>(where, what, " failed on rank ", failed->rank, ": ", failed->reason);
}

}  // namespace deepspeed::comm
