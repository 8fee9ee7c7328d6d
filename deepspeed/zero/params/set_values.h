// Gives parameters, partitioned or not, values from outside, from a file for example, and reads theirs.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Whether `tensor` is a parameter that stage 3 has partitioned.
bool is_partitioned(const at::Tensor& tensor);

/// Returns this rank's shard of a partitioned parameter, padding included: shared with it in memory, or a
/// copy in the host's memory where it lies on a disk. Undefined for another tensor. Throws IoError.
at::Tensor shard_of(const at::Tensor& tensor);
/// Returns the elements of a partitioned parameter that this rank has: shard_of() without padding.
at::Tensor own_elements_of(const at::Tensor& tensor);
/// Bytes in memory of what this rank holds of the tensor: its shard, or all of it.
int64_t held_bytes(const at::Tensor& tensor);
/// Returns the global ranks over which a parameter is partitioned; none of another tensor.
std::vector<int> ranks_that_hold(const at::Tensor& tensor);
/// Bytes on a disk of what this rank holds of the tensor.
int64_t disk_bytes(const at::Tensor& tensor);

/// Copies `values` (of the tensor's sizes, any dtype and device) into `tensor`; a partitioned parameter takes
/// this rank's part into its shard. Talks to no rank: all ranks call it with the same values. Throws
/// UsageError for another number of elements and inside of a GatheredParameters.
void set_values(const at::Tensor& tensor, const at::Tensor& values);
/// Throws UsageError inside of a GatheredParameters, where set_values() takes no values.
void check_settable(const at::Tensor& tensor);

}  // namespace deepspeed::zero
