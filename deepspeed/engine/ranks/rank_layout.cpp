#include "deepspeed/engine/ranks/rank_layout.h"

#include <numeric>
#include <string>

#include "deepspeed/comm/topology.h"

namespace deepspeed {

RankLayout data_parallel_layout(int num_ranks, int rank) {
  RankLayout layout{std::vector<int>(num_ranks), {rank}};
  std::iota(layout.data.begin(), layout.data.end(), 0);
  return layout;
}

RankLayout layout_of(const comm::Topology& topology, int rank) {
  topology.axis_size("data");  // throws where there is no such axis
  std::vector<std::string> model_axes;
  for (const comm::MeshAxis& axis : topology.axes()) {
    if (axis.name != "data") model_axes.push_back(axis.name);
  }
  if (model_axes.empty()) return data_parallel_layout(topology.world_size(), rank);
  return {topology.group_of(rank, {"data"}), topology.group_of(rank, model_axes)};
}

}  // namespace deepspeed
