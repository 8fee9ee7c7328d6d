// Values that a parameter gets from outside, from a file for example, and those that go there.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Whether `tensor` is a parameter that stage 3 has partitioned.
bool is_partitioned(const at::Tensor& tensor);

/// This rank's shard of a partitioned parameter, padding included: shared with it where it lies in memory, a
/// copy in the host's memory where it lies on a disk. Undefined for another tensor. Throws IoError.
at::Tensor shard_of(const at::Tensor& tensor);
/// Bytes of what this rank holds of the tensor, its shard or all of it: in memory, and on a disk.
int64_t held_bytes(const at::Tensor& tensor);
int64_t disk_bytes(const at::Tensor& tensor);

/// Copies `values` (of the tensor's sizes, any dtype and device) into `tensor`, or of a partitioned parameter
/// this rank's part into its shard. Talks to no rank: all ranks call it with the same values. Throws
/// UsageError for another number of elements and inside of a GatheredParameters.
void set_values(const at::Tensor& tensor, const at::Tensor& values);
/// Throws UsageError where set_values() would not take any values now: inside of a GatheredParameters.
void check_settable(const at::Tensor& tensor);

}  // namespace deepspeed::zero
