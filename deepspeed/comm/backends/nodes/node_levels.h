// Runs collectives of a group on several nodes in steps within each node and between nodes. Each byte crosses
// the links between nodes once per node instead of once per rank. Internal to this folder.
#pragma once

#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/backends/background.h"
#include "deepspeed/comm/backends/collectives.h"
#include "deepspeed/comm/backends/nodes/link_choice.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/group/group_nodes.h"
#include "deepspeed/comm/watch/call_history.h"

namespace deepspeed::comm {

/// Runs collectives of CPU tensors in steps within and between nodes. Calls come from the group's start(), in
/// the same order on all ranks.
class NodeLevels {
 public:
  /// Takes two connected groups for CPU tensors. `node` has the ranks on this rank's node; `across` has one
  /// rank of each node, the one at the index that this rank has in its own node.
  NodeLevels(const Backend& backend, c10::intrusive_ptr<c10d::ProcessGroup> node,
             c10::intrusive_ptr<c10d::ProcessGroup> across, const LinkFigures& links,
             std::chrono::milliseconds timeout);

  /// Returns whether the operation can be done in steps and is faster that way.
  bool suits(const Operation& operation) const { return is_faster_by_nodes(links_, shape_, operation); }
  /// Starts the operation on a thread of the group. Sums add in the order of a node's ranks, then of the
  /// nodes. A sum of 16-bit numbers is rounded once within the node and once between nodes.
  Started start(const Operation& operation, CallHistory::Progress call);
  /// Makes current and later operations fail. Does not wait.
  void abort();

 private:
  struct Ways;
  std::shared_ptr<Ways> ways_;
  LinkFigures links_;
  NodeShape shape_;
  BackgroundQueue queue_;
};

}  // namespace deepspeed::comm
