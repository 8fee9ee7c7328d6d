// Sets and reads the values of parameters, partitioned or not, for example from a file.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Returns whether `tensor`, or what it views, was partitioned by stage 3 or a zero::Init.
bool is_partitioned(const at::Tensor& tensor);

/// Returns this rank's shard of a partitioned parameter, padding included. It is shared if it is in memory,
/// and a copy in host memory if it is on a disk. Undefined for other tensors. Throws IoError.
at::Tensor shard_of(const at::Tensor& tensor);
/// Returns this rank's elements of a partitioned parameter: shard_of() without padding.
at::Tensor own_elements_of(const at::Tensor& tensor);
/// Returns the tensor's bytes in this rank's memory: of its shard, or of everything.
int64_t held_bytes(const at::Tensor& tensor);
/// Returns the global ranks that hold shards of a partitioned parameter, replicas included. Empty for other
/// tensors.
std::vector<int> ranks_that_hold(const at::Tensor& tensor);
/// Returns the bytes on a disk that this rank holds of the tensor.
int64_t disk_bytes(const at::Tensor& tensor);

/// Copies `values` (of the tensor's sizes, any dtype and device) into `tensor`. A partitioned parameter takes
/// this rank's part into its shard. Does not communicate: all ranks call it with the same values. Throws
/// UsageError for another number of elements and inside a GatheredParameters.
void set_values(const at::Tensor& tensor, const at::Tensor& values);
/// Throws UsageError if set_values() is not allowed now: inside a GatheredParameters, for a copy in another
/// dtype, or while shards are moved away.
void check_settable(const at::Tensor& tensor);

}  // namespace deepspeed::zero
