// Finds out which ranks share a machine if no launcher told. Internal to this folder.
#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Returns a text that identifies the machine. Two processes get the same text only if they share the network
/// namespace and the machine since its last boot.
std::string own_machine();

/// Sets the local rank and size of a `job` that does not know them. All ranks put the names of their machines
/// into `store`; ranks of one machine count from 0 in rank order. Collective. Throws CommError.
void find_local_place(Job& job, c10d::Store& store, const std::string& machine = own_machine());

}  // namespace deepspeed::comm
