// The groups of ranks that an engine talks in.
#pragma once

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

  /// Says whether a copy of the model is shared out over several ranks.
  bool shares_model() const { return static_cast<bool>(model); }
  /// Among those that hold one copy of the model together.
  int model_rank() const { return shares_model() ? model.rank() : 0; }
  int model_size() const { return shares_model() ? model.size() : 1; }
};

/// Makes the groups of an engine of this name. Collective. `purpose`: as World::own_group() has it.
ParallelGroups make_parallel_groups(const comm::World& world, const RankLayout& layout,
                                    const std::string& name, const std::string& purpose,
                                    const zero::RankSharing& sharing = {});

}  // namespace deepspeed
