// A group that someone else made is looked at here before it is adopted. Internal to this folder.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace deepspeed::comm {

/// Throws UsageError where there is no group, or none of a backend of the table; returns what to call it in
/// texts and keys, which is alike on all its ranks.
std::string check_given_group(const c10::intrusive_ptr<c10d::ProcessGroup>& given);

/// Returns the reason with which what this rank adopted ends once the given group is gone.
std::string given_group_is_gone(int rank);

}  // namespace deepspeed::comm
