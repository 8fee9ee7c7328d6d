// Counts of what a program asked of the device.
#pragma once

#include <string>

namespace null_gpu {

/// Counts one event of a kind; any thread may call.
void count(const std::string& kind);

}  // namespace null_gpu
