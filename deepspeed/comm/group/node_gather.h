// An all-gather in two steps, between nodes and then within each, sends fewer bytes between nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// A group whose ranks lie node by node, equally many on each, as two groups: those on this rank's node, and
/// of each node the one at this rank's place. Without groups nodes play no part.
struct NodeGroups {
  ProcessGroup node = {}, across = {};

  /// Whether there are several nodes with several ranks each; else one step does it.
  bool has_levels() const { return node && across && node.size() > 1 && across.size() > 1; }
};

/// Gathers as ProcessGroup::start_all_gather() of the whole group does, bit by bit: output (ranks * n), input
/// (n). Each rank's values go once to each other node, in place of once to each rank there. The step between
/// nodes is done when this returns (CUDA: the current stream sees it), the other one after wait(). Throws
/// UsageError without levels or for other sizes, CommError.
Work start_all_gather_by_nodes(const NodeGroups& nodes, const at::Tensor& output, const at::Tensor& input);

}  // namespace deepspeed::comm
