// The memory in use is told in words: DeepSpeed's memory_breakdown.
#pragma once

#include <string>

namespace deepspeed::profile {

/// Returns "allocated 0.25 GB, at most 0.50 GB; process 1.25 GB, at most 1.50 GB": tensors on the CUDA device
/// (0 without one), and what the process holds of the host's memory. 1 GB is 2^30 bytes here.
std::string memory_in_use();

}  // namespace deepspeed::profile
