#include "deepspeed/pipe/module/pipeline_parallel_grid.h"

#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/same_layers.h"

namespace deepspeed {
namespace {

ProcessTopology checked_topology(const std::optional<ProcessTopology>& topology, int num_ranks) {
  if (!topology) return default_topology(num_ranks);
  if (topology->world_size() == num_ranks) return *topology;
  raise<UsageError>("PipelineParallelGrid: the topology has ", topology->world_size(), " ranks, expected ",
                    num_ranks, ", the ranks of the job");
}

// All ranks make all groups of a kind, in the same order. Returns this rank's own group.
comm::ProcessGroup own_of(const comm::World& world, const RankGroups& groups, const std::string& name) {
  comm::ProcessGroup own;
  for (const RankGroup& ranks : groups) {
    if (const auto group = world.new_group(ranks, name)) own = group;
  }
  return own;
}

comm::World found(const comm::World& world) { return world ? world : comm::init_distributed(); }

}  // namespace

PipelineParallelGrid::PipelineParallelGrid(const std::optional<ProcessTopology>& topology,
                                           const comm::World& given)
    : ParallelRanks(checked_topology(topology, found(given).size()), found(given).rank()) {
  const comm::World world = found(given);
  pipe::require_same_topology(world.group(), this->topology());
  model_ = own_of(world, model_parallel_groups(), "model parallel");
  data_ = own_of(world, data_parallel_groups(), "data parallel");
  pipe_ = own_of(world, pipe_groups(), "pipe parallel");
  slice_ = own_of(world, slice_groups(), "slice parallel");
}

}  // namespace deepspeed
