// Starts a group's operation over shared memory. Internal to this folder.
#pragma once

#include <cstdint>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "deepspeed/comm/backends/shm/shared_exchange.h"
#include "deepspeed/comm/group/operation.h"

namespace deepspeed::comm {

/// Starts an operation on CPU tensors. `fingerprint` is a hash of all calls of the group up to this one.
/// Returns null for a monitored barrier, which uses the store.
c10::intrusive_ptr<c10d::Work> start_shared(SharedExchange& exchange, const Operation& operation,
                                            uint64_t fingerprint);

}  // namespace deepspeed::comm
