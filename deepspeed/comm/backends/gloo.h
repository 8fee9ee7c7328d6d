// Makes Gloo backends. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Connects the ranks of a group, which share `store`. Uses the network interfaces in GLOO_SOCKET_IFNAME
/// (comma-separated). If that is unset, uses loopback for a job on one machine, otherwise this machine's
/// address towards MASTER_ADDR. Unlike in c10d's own class, abort() ends current operations. Throws c10d's
/// errors.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupDescription& group);

}  // namespace deepspeed::comm
