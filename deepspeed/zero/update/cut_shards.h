// The parameters of a sub-group of stage 3, of which every rank has a shard, reached over the ranks.
#pragma once

#include <cstddef>
#include <memory>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/optim/slices/other_ranks.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed::zero {

/// all(): those whose shards are in `sub_group`, an interval of each rank's flat space. Each is made whole on
/// one rank, as many at a time as there are ranks. `store` must outlive it.
std::unique_ptr<optim::CutParameters> make_cut_shards(const ParamStore& store, size_t group,
                                                      const Interval& sub_group, comm::ProcessGroup ranks);

}  // namespace deepspeed::zero
