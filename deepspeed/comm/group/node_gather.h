// Does an all-gather in two steps, between nodes and then within each, to send fewer bytes between nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Holds two subgroups of a group whose ranks are ordered by node. All nodes have the same number of ranks.
/// `node` has the ranks on this rank's node. `across` has one rank of each node, the one at the index that
/// this rank has in its own node. If both are empty, nodes are ignored.
struct NodeGroups {
  ProcessGroup node = {}, across = {};

  /// Returns whether there are several nodes with several ranks each; otherwise one step suffices.
  bool has_levels() const { return node && across && node.size() > 1 && across.size() > 1; }
};

/// Gathers with the same result, bit by bit, as ProcessGroup::start_all_gather() of the whole group. `output`
/// is (ranks * n), `input` (n). Each rank's values go once to each other node instead of once to each rank
/// there. The step between nodes is done on return (on CUDA the current stream sees it), the step within
/// nodes after wait(). Throws CommError. Throws UsageError without several levels or for wrong sizes.
Work start_all_gather_by_nodes(const NodeGroups& nodes, const at::Tensor& output, const at::Tensor& input);

}  // namespace deepspeed::comm
