// The groups of ranks that an engine communicates in. RankLayout says, as pure data, which ranks train what
// together. ParallelGroups holds the engine's own communicators for them, since each engine of a process
// meets its peers on other ranks independently.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "deepspeed/comm/init.h"
#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/layout/zero_groups.h"

namespace deepspeed {

/// Lists global ranks in ascending order; each list contains this rank.
struct RankLayout {
  std::vector<int> data;    // ranks that hold the same parameters and train them on other data
  std::vector<int> model;   // ranks that together hold one copy of the model
  std::vector<int> slices;  // those of `model` that divide this rank's layers
  int num_stages = 1;       // number of pipeline stages in that copy
  bool slices_are_neighbours =
      true;  // in `model`: true if the ranks of a stage are adjacent, false if the stages of a slice are
};

/// Returns the layout of a rank if all `num_ranks` hold the whole model.
RankLayout data_parallel_layout(int num_ranks, int rank);

struct ParallelGroups {
  comm::ProcessGroup all;    // all ranks of the engine: for agreement and checkpoints
  comm::ProcessGroup data;   // ranks that hold the same parameters and train them on other data
  comm::ProcessGroup model;  // ranks that together hold one copy of the model; none: this rank holds it whole
  zero::ZeroGroups zero;     // how the ranks of `data` partition what they hold
  std::vector<int> slices;   // global ranks of `model` that divide this rank's layers, this rank included
  bool is_first_slice = true;  // whether this rank is the first of `slices`
  int num_stages = 1;          // of one copy; the ranks of a stage divide its layers
  bool slices_are_neighbours =
      true;  // in `model`: true if the ranks of a stage are adjacent, false if the stages of a slice are

  /// Returns whether a copy of the model is divided among several ranks.
  bool shares_model() const { return static_cast<bool>(model); }
  /// Returns this rank's number in `model`; 0 if it holds the whole model.
  int model_rank() const { return shares_model() ? model.rank() : 0; }
  int model_size() const { return shares_model() ? model.size() : 1; }
  int num_slices() const { return model_size() / num_stages; }
  /// Returns the slice of rank `place` if `num_places` ranks divide a copy of the model. That copy has as
  /// many slices as this one, and any number of stages.
  int slice_of(int place, int num_places) const {
    return slices_are_neighbours ? place % num_slices() : place / std::max(num_places / num_slices(), 1);
  }
  int slice() const { return slice_of(model_rank(), model_size()); }
};

/// Makes the communication groups of the engine `name`. Collective. `purpose`: see World::own_group().
ParallelGroups make_parallel_groups(const comm::World& world, const RankLayout& layout,
                                    const std::string& name, const std::string& purpose,
                                    const zero::RankSharing& sharing = {});

/// Makes the groups for an engine's config and model. Collective. name: InitializeOptions::engine_name.
/// Throws UsageError if another thread's engine could be mistaken for this one (comm::World::own_group()).
ParallelGroups make_engine_groups(const comm::World& world, const std::string& name,
                                  const config::DeepSpeedConfig& config, const EngineModel& model,
                                  const RankLayout& layout);

}  // namespace deepspeed
