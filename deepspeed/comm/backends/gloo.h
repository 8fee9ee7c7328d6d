// Makes Gloo backends. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Connects the ranks of a group, which share `store`. The network: the interfaces of GLOO_SOCKET_IFNAME (a
/// comma between two), else loopback where the job runs on one machine, else the address by which this
/// machine reaches MASTER_ADDR. Unlike c10d's own class, abort() ends what is under way. Throws c10d's
/// errors.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const Job& job,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupDescription& group);

}  // namespace deepspeed::comm
