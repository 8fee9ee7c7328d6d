// How fast the links within a node and between nodes are.
#pragma once

#include <cstdint>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/job/link_figures.h"

namespace deepspeed::comm {

struct MeasureLinksOptions {
  int64_t small_bytes = 1 << 10;   // what all ranks of an exchange gather together: its latency
  int64_t large_bytes = 16 << 20;  // its bandwidth
  int trials = 20;
};

/// Gathers within all nodes at once, then between them at all places at once, and returns what that takes on
/// the slowest rank. node: the ranks on this rank's node; across: of each node the one at this rank's place;
/// all: both together. Collective over `all`; all ranks get the same figures. Throws UsageError where a node
/// has one rank or there is one node.
DEEPSPEED_API LinkFigures measure_links(const ProcessGroup& all, const ProcessGroup& node,
                                        const ProcessGroup& across, const MeasureLinksOptions& options = {});

/// Is how long so many bits took.
struct TakenTime {
  double bits = 0;
  double microseconds = 0;
};

/// Returns the speed of a link by a line through two times, of more bits for the large one. Where chance made
/// the small one take about as long, the speed is at most eight times what the large one shows by itself.
LinkSpeed speed_by_line(const TakenTime& small, const TakenTime& large);

}  // namespace deepspeed::comm
