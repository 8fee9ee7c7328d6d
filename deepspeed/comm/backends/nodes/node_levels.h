// Collectives of a group whose ranks are on several nodes, in steps within each node and between the nodes:
// each byte crosses the links between nodes once a node in place of once a rank. Internal to this folder.
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

/// Takes CPU tensors. Calls come from the group's own start(), which all ranks make in one order.
class NodeLevels {
 public:
  /// Takes two connected groups of CPU tensors: the ranks on this rank's node, and of each node the one at
  /// this rank's place.
  NodeLevels(const Backend& backend, c10::intrusive_ptr<c10d::ProcessGroup> node,
             c10::intrusive_ptr<c10d::ProcessGroup> across, const LinkFigures& links,
             std::chrono::milliseconds timeout);

  /// Says whether the operation is one to be done here, since it is faster so.
  bool suits(const Operation& operation) const { return is_faster_by_nodes(links_, shape_, operation); }
  /// Starts the operation on a thread of the group. A sum of 16-bit numbers is rounded once within the node
  /// and once between nodes; sums are in the order of the ranks of a node, then of the nodes.
  Started start(const Operation& operation, CallHistory::Progress call);
  /// Ends what is under way, and what comes, with an error. Waits for nobody.
  void abort();

 private:
  struct Ways;
  std::shared_ptr<Ways> ways_;
  LinkFigures links_;
  NodeShape shape_;
  BackgroundQueue queue_;
};

}  // namespace deepspeed::comm
