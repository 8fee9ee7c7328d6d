// The groups of ranks that an engine talks in.
#pragma once

#include <algorithm>
#include <string>

#include "deepspeed/comm/init.h"
#include "deepspeed/engine/ranks/rank_layout.h"
#include "deepspeed/zero/layout/zero_groups.h"

namespace deepspeed {

struct ParallelGroups {
  comm::ProcessGroup all;    // the engine's own, of all its ranks: what all must agree on, checkpoints
  comm::ProcessGroup data;   // ranks that hold the same parameters and train them on other data
  comm::ProcessGroup model;  // ranks that hold one copy of the model together; none: this rank holds it whole
  zero::ZeroGroups zero;     // how those of `data` share out what they hold
  int num_stages = 1;        // of such a copy; the ranks of a stage share its layers out
  bool slices_are_neighbours = true;  // in `model`: the ranks of a stage, else the stages of a slice

  /// Says whether a copy of the model is shared out over several ranks.
  bool shares_model() const { return static_cast<bool>(model); }
  /// Among those that hold one copy of the model together.
  int model_rank() const { return shares_model() ? model.rank() : 0; }
  int model_size() const { return shares_model() ? model.size() : 1; }
  int num_slices() const { return model_size() / num_stages; }
  /// Returns the slice of a place among `num_places` of a copy of so many slices as this one, and any number
  /// of stages.
  int slice_of(int place, int num_places) const {
    return slices_are_neighbours ? place % num_slices() : place / std::max(num_places / num_slices(), 1);
  }
  int slice() const { return slice_of(model_rank(), model_size()); }
};

/// Makes the groups of an engine of this name. Collective. `purpose`: as World::own_group() has it.
ParallelGroups make_parallel_groups(const comm::World& world, const RankLayout& layout,
                                    const std::string& name, const std::string& purpose,
                                    const zero::RankSharing& sharing = {});

}  // namespace deepspeed
