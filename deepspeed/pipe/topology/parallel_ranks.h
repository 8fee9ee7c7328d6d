// The ranks that a pipeline's rank works with. PipelineParallelGrid builds its process groups from these.
#pragma once

#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/pipe/topology/process_topology.h"

namespace deepspeed {

using RankGroup = std::vector<int>;
using RankGroups = std::vector<RankGroup>;

/// Holds the groups of all ranks, and one rank's place in them. The axes are "pipe", "data" and "model"; a
/// missing one counts as size 1. In DeepSpeed's terms a rank's "model parallel" group is all of a pipeline
/// (stages and slices), and its "slice" group the ranks that share a layer.
class DEEPSPEED_API ParallelRanks {
 public:
  /// Throws UsageError if the rank is not in the topology.
  ParallelRanks(ProcessTopology topology, int global_rank);

  const ProcessTopology& topology() const { return topology_; }
  int global_rank() const { return global_rank_; }

  int stage_id() const { return position("pipe"); }
  int data_parallel_id() const { return position("data"); }
  int slice_parallel_rank() const { return position("model"); }
  /// Returns the index of the rank in its model parallel group.
  int model_parallel_rank() const;

  int pipe_parallel_size() const { return size("pipe"); }
  int data_parallel_size() const { return size("data"); }
  int slice_parallel_size() const { return size("model"); }
  int model_parallel_size() const { return static_cast<int>(model_parallel_group().size()); }

  bool is_first_stage() const { return stage_id() == 0; }
  bool is_last_stage() const { return stage_id() == pipe_parallel_size() - 1; }

  /// These return all groups of a kind, each rank in one of them. They are in DeepSpeed's order, in which all
  /// ranks must make them.
  RankGroups pipe_groups() const { return groups("pipe"); }
  RankGroups data_parallel_groups() const { return groups("data"); }
  RankGroups slice_groups() const { return groups("model"); }
  RankGroups model_parallel_groups() const;
  /// Returns a pair for each rank: itself, then its neighbour on the next stage. After the last stage comes
  /// the first.
  RankGroups p2p_groups() const;

  /// These return the group that holds this rank.
  RankGroup pipe_group() const { return own(pipe_groups()); }
  RankGroup data_parallel_group() const { return own(data_parallel_groups()); }
  RankGroup slice_group() const { return own(slice_groups()); }
  RankGroup model_parallel_group() const { return own(model_parallel_groups()); }

  /// Returns the global rank of a stage that has this rank's other coordinates. `others` replaces some of
  /// them. Throws UsageError for coordinates that do not exist.
  int stage_to_global(int stage_id, const ProcessCoord& others = {}) const;

 private:
  int position(const std::string& axis) const;
  int size(const std::string& axis) const;
  RankGroups groups(const std::string& axis) const;
  RankGroup own(const RankGroups& groups) const;
  ProcessTopology topology_;
  int global_rank_;
};

/// Returns DeepSpeed's default topology for a world. Its prime factors go to the axes "pipe" and "data" in
/// turn. Throws UsageError for a size below 1.
DEEPSPEED_API PipeDataParallelTopology default_topology(int world_size);

}  // namespace deepspeed
