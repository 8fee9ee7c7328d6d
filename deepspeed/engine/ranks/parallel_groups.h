// The groups of ranks that an engine talks in: which ranks this one trains what with, as pure data, and the
// engine's own communicators of these ranks, since engines of one process meet their peers on other ranks
// each by itself.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/layout/zero_groups.h"

namespace deepspeed {

/// Global ranks, ascending, with this one among them.
struct RankLayout {
  std::vector<int> data;              // ranks that hold the same parameters and train them on other data
  std::vector<int> model;             // ranks that hold one copy of the model together
  std::vector<int> slices;            // those of `model` that share this rank's layers out
  int num_stages = 1;                 // of how many parts, one behind another, that copy is made
  bool slices_are_neighbours = true;  // in `model`: the ranks of a stage, else the stages of a slice
};

/// Returns the layout of a rank where all `num_ranks` hold the whole model.
RankLayout data_parallel_layout(int num_ranks, int rank);

struct ParallelGroups {
  comm::ProcessGroup all;    // the engine's own, of all its ranks: what all must agree on, checkpoints
  comm::ProcessGroup data;   // ranks that hold the same parameters and train them on other data
  comm::ProcessGroup model;  // ranks that hold one copy of the model together; none: this rank holds it whole
  zero::ZeroGroups zero;     // how those of `data` share out what they hold
  std::vector<int> slices;   // global ranks of `model` that share this rank's layers out, with this one
  bool is_first_slice = true;         // whether this rank is the first of them
  int num_stages = 1;                 // of such a copy; the ranks of a stage share its layers out
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

/// Collective. name: InitializeOptions::engine_name. Throws UsageError where another thread's engine could be
/// taken for this one (comm::World::own_group()).
ParallelGroups make_engine_groups(const comm::World& world, const std::string& name,
                                  const config::DeepSpeedConfig& config, const EngineModel& model,
                                  const RankLayout& layout);

}  // namespace deepspeed
