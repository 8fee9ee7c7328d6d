// Makes all ranks of a job use the link figures of one file. Internal to this folder.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/job/job.h"

namespace deepspeed::comm {

/// Sets the job's ranks per node, and its link figures from the file in DEEPSPEED_LINKS. The ranks per node
/// are DEEPSPEED_RANKS_PER_NODE, or else the number of ranks on rank 0's machine. Rank 0's values apply to
/// all ranks; a rank with different values logs a line. If the variable is not set on rank 0, there are no
/// figures. `store` is shared by all ranks. If rank 0 cannot read its file, it throws the error of
/// read_link_figures(), and the others UsageError. Throws CommError if rank 0 does not come.
void agree_on_links(Job& job, c10d::Store& store);

}  // namespace deepspeed::comm
