// Checks whether partitioned parameters can become ordinary tensors again.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Returns whether `tensor` is a partitioned parameter whose engine ended without making it whole.
bool is_abandoned(const at::Tensor& tensor);

/// Throws UsageError naming a partitioned parameter that an operator or a GatheredParameters uses. Throws
/// UsageError too while shards are moved to the host by offload_states(). Does not communicate.
void check_unused(const std::vector<at::Tensor>& params);

}  // namespace deepspeed::zero
