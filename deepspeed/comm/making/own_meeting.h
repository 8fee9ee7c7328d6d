// Ranks that make a group which its name alone tells apart wait for each other, and say whom they miss.
// Internal to this folder.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/absent_ranks.h"
#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Returns once all ranks make the group of this `key`. Where a rank that is missing makes another one
/// instead, a line of the log says so after ten seconds. Throws CommError where a rank left or ended, which
/// it names, and after the group's timeout, with the ranks that are missing. `store` is shared by all such
/// groups.
void meet_to_connect(const GroupDescription& group, const std::string& key, c10d::Store& store,
                     AbsentRanks absent);

}  // namespace deepspeed::comm
