// A barrier over the store, which knows who is missing. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group_impl.h"

namespace deepspeed::comm {

/// `number` counts the group's monitored barriers. Throws CommError naming the ranks that did not come within
/// `timeout`, all of them or the first.
void wait_at_monitored_barrier(const GroupDescription& group, c10d::Store& store, uint64_t number,
                               std::chrono::milliseconds timeout, bool name_all);

}  // namespace deepspeed::comm
