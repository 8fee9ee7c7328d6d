// All ranks of a job go by the figures of one file. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Notes in the job the figures of the file that DEEPSPEED_LINKS names, and how many consecutive ranks a node
/// has (DEEPSPEED_RANKS_PER_NODE, else the ranks of rank 0's machine). Rank 0's count on all ranks; one that
/// finds others logs a line. Without the variable on rank 0 there are none. `store` is that of all ranks.
/// Throws on all ranks where rank 0 cannot read its file: what read_link_figures() throws there, UsageError
/// on the others. Throws CommError where rank 0 does not come.
void agree_on_links(Job& job, c10d::Store& store);

}  // namespace deepspeed::comm
