// Runs work on each rank separately and reports a failure to all ranks. Otherwise they would wait in a
// collective that the failed rank does not reach.
#pragma once

#include <functional>
#include <optional>
#include <source_location>
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

struct FailedRank {
  int rank = 0;  // in the group, the first that failed
  std::string reason;
};

/// Runs `work` and tells the ranks of the group how it ended. `work` must not communicate. Throws what `work`
/// threw on this rank. If it succeeded here but not everywhere, returns which rank failed. Collective.
std::optional<FailedRank> run_and_tell(const ProcessGroup& group, const std::function<void()>& work);

/// Runs `work` like run_and_tell(). If another rank failed, throws an `E` from `where` that names the rank,
/// what was done ("saving") and the reason. Collective.
template <class E = IoError>
void on_all_ranks(const ProcessGroup& group, const char* what, const std::function<void()>& work,
                  const std::source_location& where = std::source_location::current()) {
  if (const auto failed = run_and_tell(group, work))
    raise_at<E>(where, what, " failed on rank ", failed->rank, ": ", failed->reason);
}

}  // namespace deepspeed::comm
