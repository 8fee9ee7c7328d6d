// Describes the memory in use: DeepSpeed's memory_breakdown.
#pragma once

#include <string>

namespace deepspeed::profile {

/// Returns the memory in use as text. Example: "allocated 0.25 GB, at most 0.50 GB; process 1.25 GB, at most
/// 1.50 GB". The first two are tensors on the CUDA device (0 without one), the others the process's host
/// memory. 1 GB is 2^30 bytes here.
std::string memory_in_use();

}  // namespace deepspeed::profile
