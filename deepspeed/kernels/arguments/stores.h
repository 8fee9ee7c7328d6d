// Says how kernels write what they made. Links no torch.
#pragma once

namespace deepspeed::kernels {

/// Where stores go. Past the caches, they save reading the lines that they fill, and push nothing out; who
/// reads them soon pays for it.
enum class Stores { kCached, kPastCaches };

}  // namespace deepspeed::kernels
