// A copy that leaves the caches to others. Links no torch.
#pragma once

#include <cstddef>

namespace deepspeed::kernels {

/// Where stores go. Past the caches, they save reading the lines that they fill, and push nothing out; who
/// reads them soon pays for it.
enum class Stores { kCached, kPastCaches };

/// Copies between ranges that do not overlap. All stores are visible to others before a later release.
void copy(void* to, const void* from, size_t bytes, Stores stores);

}  // namespace deepspeed::kernels
