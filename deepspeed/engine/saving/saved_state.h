// The files of a checkpoint hold what the optimizer keeps in this form: masters in fp32, or fp64 where the
// parameters are, beside the states. Masters that are made of something else, and all that is on a disk, are
// made and read while the file is written, and take no memory of their size.
#pragma once

#include <cstddef>

#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/archive/deferred_tensors.h"
#include "deepspeed/zero/update/state_slice.h"

namespace deepspeed {

namespace zero {
class ZeroOptimizer;
}

/// Returns the state of a part of what this rank owns of the group: of one sub-group at stage 3. Its tensors
/// may be of `deferred`; they must be written before the optimizer changes, and is gone. Throws as
/// ZeroState::of() does.
zero::GroupState saved_state(zero::ZeroOptimizer& optimizer, size_t group, const Interval& part,
                             checkpoint::DeferredTensors& deferred);

/// Returns this rank's shard of a partitioned parameter, on the CPU: of `deferred` where it lies on a disk.
/// Undefined for another tensor.
at::Tensor saved_shard(const at::Tensor& param, checkpoint::DeferredTensors& deferred);

}  // namespace deepspeed
