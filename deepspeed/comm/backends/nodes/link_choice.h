// Which way a collective of ranks on several nodes is faster, by what was measured of the links. Pure
// arithmetic, which all ranks do alike. Internal to this folder.
#pragma once

#include <cstdint>

#include "deepspeed/comm/group/operation.h"
#include "deepspeed/comm/job/link_figures.h"

namespace deepspeed::comm {

/// Nodes, with so many ranks each.
struct NodeShape {
  int num_nodes = 1;
  int places = 1;
};

/// Microseconds of a collective.
struct WayTimes {
  double flat = 0;      // every rank sends every other one its part
  double by_nodes = 0;  // within each node, and between nodes once (node_levels.h)
};

/// Estimates the times of an all_reduce, all_gather, reduce_scatter or reduce_to_owners over tensors of
/// `bytes` in all, B of which are a rank's part. Flat, a rank receives (N - 1) L B of other nodes, whose link
/// it shares with L ranks, and (L - 1) B of its own; by nodes (N - 1) B and (L - 1) N B, and all bytes are
/// put in order once more. An all_reduce is such a sum and such a gather.
WayTimes estimate(const LinkFigures& links, const NodeShape& shape, bool is_all_reduce, int64_t bytes);

/// Says whether the operation is one that can go by nodes, and is faster so.
bool is_faster_by_nodes(const LinkFigures& links, const NodeShape& shape, const Operation& operation);

}  // namespace deepspeed::comm
