// Chooses the faster way for a collective of ranks on several nodes, from measured links. This is pure
// arithmetic with the same result on all ranks. Internal to this folder.
#pragma once

#include <cstdint>

#include "deepspeed/comm/group/operation.h"
#include "deepspeed/comm/job/link_figures.h"

namespace deepspeed::comm {

/// Describes a group on several nodes that have `places` ranks each.
struct NodeShape {
  int num_nodes = 1;
  int places = 1;
};

/// Holds a collective's estimated microseconds, flat and in steps by nodes.
struct WayTimes {
  double flat = 0;      // every rank sends its part to every other rank
  double by_nodes = 0;  // in steps within each node and between nodes (node_levels.h)
};

/// Estimates the times of an all_reduce, all_gather, reduce_scatter or reduce_to_owners. The whole tensor has
/// `bytes`, of which B are one rank's part. There are N nodes of L ranks. Flat, a rank receives (N - 1) L B
/// from other nodes over a link shared by L ranks, and (L - 1) B from its own node. By nodes it receives (N -
/// 1) B and (L - 1) N B, and all bytes are reordered once more. An all_reduce counts as a sum followed by a
/// gather, without the reordering.
WayTimes estimate(const LinkFigures& links, const NodeShape& shape, bool is_all_reduce, int64_t bytes);

/// Returns whether steps within each node and between nodes are faster for the operation. Returns false if it
/// cannot be divided into them.
bool is_faster_by_nodes(const LinkFigures& links, const NodeShape& shape, const Operation& operation);

}  // namespace deepspeed::comm
