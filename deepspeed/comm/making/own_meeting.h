// Lets ranks that make a group, identified only by its name, wait for each other and report missing ranks.
// Internal to this folder.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/absent_ranks.h"
#include "deepspeed/comm/group/group_impl.h"

namespace deepspeed::comm {

/// Returns once all ranks make the group of this `key`. If a missing rank makes another group instead, that
/// is logged after ten seconds. Throws CommError if `absent` finds that a rank left or ended, naming it, and
/// after the group's timeout, naming the missing ranks. `store` is shared by all such groups.
void meet_to_connect(const GroupDescription& group, const std::string& key, c10d::Store& store,
                     AbsentRanks absent);

}  // namespace deepspeed::comm
