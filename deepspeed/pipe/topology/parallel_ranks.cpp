#include "deepspeed/pipe/topology/parallel_ranks.h"

#include <algorithm>
#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed {

ParallelRanks::ParallelRanks(ProcessTopology topology, int global_rank)
    : topology_(std::move(topology)), global_rank_(global_rank) {
  topology_.get_coord(global_rank);  // throws for a rank outside
}

int ParallelRanks::position(const std::string& axis) const {
  const auto coord = topology_.get_coord(global_rank_);
  const auto found = coord.find(axis);
  return found == coord.end() ? 0 : found->second;
}

int ParallelRanks::size(const std::string& axis) const { return std::max(topology_.get_dim(axis), 1); }

RankGroups ParallelRanks::groups(const std::string& axis) const {
  if (topology_.get_dim(axis) > 0) return topology_.get_axis_comm_lists(axis);
  RankGroups alone;
  for (int rank = 0; rank < topology_.world_size(); ++rank) alone.push_back({rank});
  return alone;
}

RankGroups ParallelRanks::model_parallel_groups() const {
  if (topology_.get_dim("data") == 0) return {topology_.filter_match({})};
  RankGroups result;
  for (int i = 0; i < data_parallel_size(); ++i) result.push_back(topology_.get_axis_list("data", i));
  return result;
}

RankGroup ParallelRanks::own(const RankGroups& groups) const {
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), global_rank_) != group.end()) return group;
  }
  raise<UsageError>("rank ", global_rank_, " is in no group");
}

int ParallelRanks::model_parallel_rank() const {
  const auto group = model_parallel_group();
  return static_cast<int>(std::find(group.begin(), group.end(), global_rank_) - group.begin());
}

RankGroups ParallelRanks::p2p_groups() const {
  RankGroups pairs(topology_.world_size());
  for (const auto& group : pipe_groups()) {
    for (size_t i = 0; i < group.size(); ++i) pairs[group[i]] = {group[i], group[(i + 1) % group.size()]};
  }
  return pairs;
}

int ParallelRanks::stage_to_global(int stage_id, const ProcessCoord& others) const {
  auto coord = topology_.get_coord(global_rank_);
  for (const auto& [axis, position] : others) coord[axis] = position;
  coord["pipe"] = stage_id;
  return topology_.get_rank(coord);
}

PipeDataParallelTopology default_topology(int world_size) {
  if (world_size < 1) raise<UsageError>("the world size is ", world_size, ", expected 1 or more");
  int sizes[] = {1, 1};
  int axis = 0;
  for (int prime = 2; world_size > 1; ++prime) {
    for (; world_size % prime == 0; world_size /= prime, axis = 1 - axis) sizes[axis] *= prime;
  }
  return {sizes[0], sizes[1]};
}

}  // namespace deepspeed
