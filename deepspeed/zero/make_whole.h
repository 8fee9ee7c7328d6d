// Whether partitioned parameters can become ordinary tensors again.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace deepspeed::zero {

/// Whether `tensor` is a partitioned parameter whose engine is gone without having made it whole.
bool is_abandoned(const at::Tensor& tensor);

/// Throws UsageError, naming the parameter, where one of them is partitioned and an operator or a
/// GatheredParameters has it. Talks to no rank.
void check_unused(const std::vector<at::Tensor>& params);

}  // namespace deepspeed::zero
