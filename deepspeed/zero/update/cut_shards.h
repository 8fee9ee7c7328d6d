// Reaches, over the ranks, the parameters of a stage 3 sub-group. Every rank has a shard of each.
#pragma once

#include <cstddef>
#include <memory>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/other_ranks.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// Makes the CutParameters for parameters in `sub_group`, an interval of the shards' flat space. all() lists
/// them. Each is made whole on one rank; every rank does so with another parameter at the same time. `store`
/// must outlive the result.
std::unique_ptr<optim::CutParameters> make_cut_shards(const ParamStore& store, size_t group,
                                                      const Interval& sub_group, comm::ProcessGroup ranks);

}  // namespace deepspeed::zero
