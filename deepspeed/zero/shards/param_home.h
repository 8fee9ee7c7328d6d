// Where a rank keeps its part of the parameters.
#pragma once

namespace deepspeed::zero {

/// Where what a rank holds of the parameters lies while nothing uses them. Shards whose home is a disk are in
/// the host's memory where that has room for them.
enum class ParamHome { kDevice, kHost, kDisk };

}  // namespace deepspeed::zero
