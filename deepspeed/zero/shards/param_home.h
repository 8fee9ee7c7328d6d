// Where a rank keeps its part of the parameters.
#pragma once

namespace deepspeed::zero {

/// Names the place of a rank's parameter data while it is not used. Shards with a disk as their home are in
/// host memory if there is room for them.
enum class ParamHome { kDevice, kHost, kDisk };

}  // namespace deepspeed::zero
