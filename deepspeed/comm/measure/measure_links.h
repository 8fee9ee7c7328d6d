// Measures how fast the links within a node and between nodes are.
#pragma once

#include <cstdint>

#include "deepspeed/base/export.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/job/link_figures.h"

namespace deepspeed::comm {

struct MeasureLinksOptions {
  int64_t small_bytes = 1 << 10;   // size of an exchange over all ranks, for the latency
  int64_t large_bytes = 16 << 20;  // the same for the bandwidth
  int trials = 20;
};

/// Measures all-gathers in all `node` groups together, then in all `across` groups together. The times are
/// those of the slowest rank. `node` holds the ranks on this rank's node. `across` holds one rank per node,
/// the one at the index that this rank has in its own node. `all` holds the ranks of all nodes. Collective
/// over `all`; all ranks get the same results. Throws UsageError if a node has one rank, there is only one
/// node, or small_bytes is not below large_bytes.
DEEPSPEED_API LinkFigures measure_links(const ProcessGroup& all, const ProcessGroup& node,
                                        const ProcessGroup& across, const MeasureLinksOptions& options = {});

/// Holds how long it took to transfer a number of bits.
struct TakenTime {
  double bits = 0;
  double microseconds = 0;
};

/// Returns latency and speed of a link from a line through two times. `large` has more bits. If by chance
/// `small` took about as long as `large`, the speed is at most eight times the bits per time of `large`.
LinkSpeed speed_by_line(const TakenTime& small, const TakenTime& large);

}  // namespace deepspeed::comm
