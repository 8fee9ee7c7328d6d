// Ranks find out here which of them share a machine, where no launcher told. Internal to this folder.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Names the machine: the text is equal in two processes that share a machine, up to its next start, and its
/// network, and differs in all others.
std::string own_machine();

/// Sets the local rank and size of a `job` that does not know them, from the names of the machines that all
/// ranks put into `store`: ranks of one machine count from 0 in the order of their ranks. Collective. Throws
/// CommError.
void find_local_place(Job& job, c10d::Store& store, const std::string& machine = own_machine());

}  // namespace deepspeed::comm
