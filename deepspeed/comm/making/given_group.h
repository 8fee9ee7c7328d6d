// Checks a group that someone else made before it is adopted. Internal to this folder.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace deepspeed::comm {

/// Returns the given group's name for texts and keys. It is the same on all its ranks. Throws UsageError if
/// `given` is null, or its backend is not in the table (table.h).
std::string check_given_group(const c10::intrusive_ptr<c10d::ProcessGroup>& given);

/// Returns the reason with which groups end after this rank's given group is gone.
std::string given_group_is_gone(int rank);

}  // namespace deepspeed::comm
