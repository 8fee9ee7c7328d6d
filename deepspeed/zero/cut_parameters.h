// The parameters of a group that the partitions cut, joined over the ranks.
#pragma once

#include <memory>

#include "deepspeed/comm/process_group.h"
#include "deepspeed/optim/cut_parameters.h"
#include "deepspeed/zero/param_store.h"

namespace deepspeed::zero {

/// `stored` must outlive it.
std::unique_ptr<optim::CutParameters> make_cut_parameters(const StoredGroup& stored,
                                                          comm::ProcessGroup group);

}  // namespace deepspeed::zero
